"""Plan the request to the conda worker: channels, specifications, virtual packages and network settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.layout import ENV_PREFIX
from argosy.core.records import replace
from argosy.core.redact import STARS, redact, without_login
from argosy.recipes.conda_spec import render_conda_spec
from argosy.recipes.condarc import ALIAS, FALLBACK, Condarc, channel_address, plan_channels
from argosy.recipes.recipe import Channel, CondaPin, CondaSpec, Recipe, Where

SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le", "riscv64": "linux-riscv64"}

OLDEST_KERNEL = "4.18"
"""Kernel of RHEL 8, the oldest system in use on clusters; packages that need a newer kernel would fail there."""

VirtualPackage = tuple[str, str, str]


class CondaTarget(msgspec.Struct, frozen=True):
    """The machine on which the environment will run."""

    arch: str
    """Architecture as in ``uname -m``."""
    glibc: str
    """Version of the base's glibc, empty if it has another C library."""
    cuda: str = ""
    """CUDA version that the driver of the nodes supports, empty without NVIDIA GPUs."""
    archspec: str = ""
    """Instruction set of the site's nodes. If it is empty, the baseline of the architecture is used."""

    @property
    def subdir(self) -> str:
        """Return conda's name of the platform."""
        if self.arch not in SUBDIRS:
            raise UsageError(f"conda has no packages for {self.arch}", hint="use pip packages with the base's Python")
        return SUBDIRS[self.arch]


def plan_virtual_packages(target: CondaTarget) -> tuple[VirtualPackage, ...]:
    """Return the virtual packages: name, version, build.

    Without a site profile the instruction set is the architecture's baseline, because the login node may have a newer
    processor than the compute nodes.
    """
    rows = [("__unix", "0", "0"), ("__linux", OLDEST_KERNEL, "0"), ("__archspec", "1", target.archspec or target.arch)]
    rows += [("__glibc", target.glibc, "0")] if target.glibc else []
    rows += [("__cuda", target.cuda, "0")] if target.cuda else []
    return tuple(rows)


def parse_glibc(text: str) -> str:
    """Return the version in the output of ``getconf GNU_LIBC_VERSION`` or ``ldd --version``; empty without glibc."""
    lines = text.strip().splitlines()
    if not lines or "musl" in text or not re.search(r"(?i)glibc|gnu libc|ldd", lines[0]):
        return ""
    found = re.findall(r"(?<![\w.])2\.\d+(?:\.\d+)?", lines[0])
    return found[-1] if found else ""


def parse_cuda(text: str) -> str:
    """Check a version of CUDA, and return it."""
    if text and not re.fullmatch(r"\d{1,2}(\.\d{1,2})?", text):
        raise UsageError(f"invalid CUDA version '{text}'", hint="write for example --cuda 12.8")
    return text


class CondaPlan(msgspec.Struct, frozen=True):
    """The packages for conda to solve and install."""

    channels: tuple[str, ...]
    """Addresses in order of priority, possibly with credentials."""
    names: tuple[str, ...]
    """Names of packages to install."""
    constraints: tuple[str, ...]
    """Constraints on packages, in conda's syntax."""
    direct: tuple[str, ...]
    """Specifications with a channel or address, which rattler does not accept as constraints."""
    virtual: tuple[VirtualPackage, ...]
    platform: str
    asked: tuple[CondaSpec, ...] = ()
    """The specifications with their positions, for messages."""
    for_pip: tuple[CondaSpec, ...] = ()
    """Packages that only a pip section needs, with the position of its first package."""
    priority: str = "Strict"
    """rattler's name of the channel priority."""
    config: str = ""
    notes: tuple[str, ...] = ()
    pins: tuple[CondaPin, ...] = ()
    """Exact packages. If there are any, nothing is solved and no channel is read."""

    def __repr__(self) -> str:
        """Render without the channels, whose addresses may contain credentials."""
        return f"CondaPlan(names={self.names!r}, constraints={self.constraints!r})"


def plan_conda(
    recipe: Recipe, condarc: Condarc, target: CondaTarget, *, environment: Mapping[str, str], cwd: Path
) -> CondaPlan:
    """Plan the conda part of a recipe."""
    if recipe.conda_pins:
        return _plan_pins(recipe, condarc, target, environment, cwd)
    asked = (*recipe.interpreter, *recipe.conda)
    channels, notes = _channels(recipe, condarc)
    addresses = plan_channels(channels, condarc, environment=environment, cwd=cwd)
    direct = [spec for spec in asked if spec.channel or dict(spec.extra).get("url")]
    plain = [spec for spec in asked if spec not in direct]
    # As in conda, a specification may name a channel that is not in the list.
    own = [address for spec in direct for address in _addresses_of(spec, condarc, cwd)]
    implied = _implied(recipe, asked)
    return CondaPlan(
        channels=tuple(dict.fromkeys((*addresses, *own))),
        names=tuple(dict.fromkeys(spec.name for spec in (*plain, *implied))),
        constraints=tuple(
            text for spec in (*plain, *recipe.conda_limits) if (text := render_conda_spec(spec)) != spec.name
        ),
        direct=tuple(render_conda_spec(_with_address(spec, condarc, cwd)) for spec in direct),
        virtual=plan_virtual_packages(target),
        platform=target.subdir,
        asked=asked,
        for_pip=implied,
        priority=condarc.priority,
        config=_render_config(condarc, environment, cwd),
        notes=tuple(notes),
    )


def _addresses_of(spec: CondaSpec, condarc: Condarc, cwd: Path) -> tuple[str, ...]:
    """Return the addresses of a specification's channel; empty if it names none."""
    names = condarc.default_channels if spec.channel == "defaults" else (spec.channel,) if spec.channel else ()
    return tuple(channel_address(name, condarc, cwd) for name in names)


def _with_address(spec: CondaSpec, condarc: Condarc, cwd: Path) -> CondaSpec:
    """Replace the name of a channel by its address if the configuration moves it: rattler knows only Anaconda's hosts.

    For ``defaults`` this is its first channel, because rattler accepts only one.
    """
    address = next(iter(_addresses_of(spec, condarc, cwd)), "")
    return spec if address in ("", f"{ALIAS}/{spec.channel}") else replace(spec, channel=address)


def _plan_pins(
    recipe: Recipe, condarc: Condarc, target: CondaTarget, environment: Mapping[str, str], cwd: Path
) -> CondaPlan:
    """Plan the installation of exact packages."""
    channels = tuple(dict.fromkeys(pin.url.rsplit("/", 2)[0] for pin in recipe.conda_pins))
    return CondaPlan(
        channels=channels,
        names=(),
        constraints=(),
        direct=(),
        virtual=plan_virtual_packages(target),
        platform=target.subdir,
        config=_render_config(condarc, environment, cwd),
        pins=recipe.conda_pins,
    )


def requested_specs(recipe: Recipe) -> tuple[str, ...]:
    """Return the requested specifications in conda's syntax without credentials, for the history of the prefix."""
    asked = (render_conda_spec(spec) for spec in (*recipe.interpreter, *recipe.conda))
    return recipe.requested or tuple(dict.fromkeys(map(redact, asked))) if recipe.wants_conda else ()


def _channels(recipe: Recipe, condarc: Condarc) -> tuple[tuple[Channel, ...], list[str]]:
    if any(channel.name != "nodefaults" for channel in recipe.channels):
        return recipe.channels, []
    if condarc.channels:
        return tuple(Channel(name, Where(condarc.files[-1], 1)) for name in condarc.channels), []
    note = f"the files name no channel; using {FALLBACK}"
    return (Channel(FALLBACK, Where("", 0)),), [note]


def _implied(recipe: Recipe, asked: tuple[CondaSpec, ...]) -> tuple[CondaSpec, ...]:
    """Return the packages that a pip section needs in addition; conda adds them, too."""
    named = {spec.name for spec in asked}
    return tuple(
        CondaSpec(name, "", "", "", line.where)
        for line in recipe.pip[:1]
        for name in ("python", "pip")
        if name not in named
    )


def _render_config(condarc: Condarc, environment: Mapping[str, str], cwd: Path) -> str:
    """Render the network settings as rattler's configuration in TOML."""
    lines: list[str] = []
    if str(condarc.ssl_verify).lower() == "false":
        lines.append("tls-no-verify = true")
    # rattler's bundled certificates lack the authorities of sites; the system's store has them and uses SSL_CERT_FILE.
    elif certificates(condarc, environment):
        lines.append('tls-root-certs = "system"')
    if condarc.mirrored_channels:
        lines.append("[mirrors]")
        for name, others in condarc.mirrored_channels.items():
            addresses = [channel_address(other, condarc, cwd) for other in others]
            lines.append(f"{json.dumps(channel_address(name, condarc, cwd))} = {json.dumps(addresses)}")
    return "\n".join(lines)


def certificates(condarc: Condarc, environment: Mapping[str, str]) -> str:
    """Return the file of certificates from the configuration or the environment; may be empty."""
    named = str(condarc.ssl_verify) if "/" in str(condarc.ssl_verify) else ""
    return named or next(
        (environment[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if environment.get(name)), ""
    )


class CondaPackage(msgspec.Struct, frozen=True):
    """A chosen conda package."""

    name: str
    version: str
    build: str
    url: str
    """Address of the package file, without credentials."""
    sha256: str = ""
    md5: str = ""
    """Digests of the package file; one may be empty."""
    size: int = 0
    """Size of the package file in bytes; 0 if unknown."""
    login_url: str = ""
    """Address with credentials, only for the worker."""

    def __repr__(self) -> str:
        """Render without the credentials."""
        return f"CondaPackage({self.name!r}, {self.version!r}, {self.build!r}, {self.url!r})"


class Installation(msgspec.Struct, frozen=True):
    """Exact conda packages to install into a folder."""

    packages: tuple[CondaPackage, ...]
    tree: Path
    """The folder, which is `ENV_PREFIX` in the image."""
    spare: Path | None = None
    """A second, read-only folder of unpacked packages, or None."""


def render_request(plan: CondaPlan, *, cache: Path, installation: Installation | None = None) -> str:
    """Render the worker's input; it may contain credentials, so it is only sent through a pipe.

    `installation` has the packages to install; with None, the worker chooses those of the plan.
    """
    channels = {
        "channels": plan.channels,
        "names": plan.names,
        "constraints": plan.constraints,
        "direct": plan.direct,
        "hashes": _hashes_of_direct(plan),
        "virtual": plan.virtual,
        "priority": plan.priority,
    }
    pins = (
        {
            "pins": [_render_pin(each) for each in installation.packages],
            "tree": str(installation.tree),
            "prefix": ENV_PREFIX,
            "spare": str(installation.spare or ""),
        }
        if installation
        else {"pins": [], **channels}
    )
    return json.dumps({"platform": plan.platform, "config": plan.config, "cache": str(cache), **pins})


def _render_pin(package: CondaPackage) -> tuple[str | int, ...]:
    """Return the row of an exact package. The address from a lock has a redacted login, which is removed."""
    url = without_login(package.login_url) if STARS in package.login_url else package.login_url
    return package.name, package.version, package.build, url, package.sha256, package.md5, package.size


def _hashes_of_direct(plan: CondaPlan) -> dict[str, str]:
    """Return the hashes of packages that are given by address: after the address or in brackets."""
    hashes: dict[str, str] = {}
    for spec in plan.asked:
        extra = dict(spec.extra)
        url, _, behind = extra.get("url", "").partition("#")
        if url and (wanted := behind.removeprefix("sha256:") or extra.get("sha256", "") or extra.get("md5", "")):
            hashes[url] = wanted.lower()
    return hashes
