"""Plan what the worker is asked: channels, specifications, the machine, the network; the request is a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.redact import STARS, redact, without_login
from argosy.recipes.conda_spec import render_conda_spec
from argosy.recipes.condarc import ALIAS, FALLBACK, Condarc, channel_address, plan_channels
from argosy.recipes.recipe import Channel, CondaPin, CondaSpec, Recipe, Where

SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le", "riscv64": "linux-riscv64"}

OLDEST_KERNEL = "4.18"
"""Of RHEL 8, the oldest system on which clusters run: what needs a newer kernel would fail there."""

VirtualPackage = tuple[str, str, str]


class CondaTarget(msgspec.Struct, frozen=True):
    """The machine that the environment is for.

    Attributes
    ----------
    arch
        As ``uname -m`` says it.
    glibc
        Version of the base's C library; empty where it has another one.
    cuda
        Version of CUDA that the driver of the nodes supports; empty: no NVIDIA GPU is assumed.
    archspec
        Instruction set of the site's nodes, as its profile says; empty: the architecture's common one.
    """

    arch: str
    glibc: str
    cuda: str = ""
    archspec: str = ""

    @property
    def subdir(self) -> str:
        """Give conda's word for the architecture.

        Raises
        ------
        UsageError
            Where conda has no packages for it.
        """
        if self.arch not in SUBDIRS:
            raise UsageError(f"conda has no packages for {self.arch}", hint="use pip packages over the base's Python")
        return SUBDIRS[self.arch]


def plan_virtual_packages(target: CondaTarget) -> tuple[VirtualPackage, ...]:
    """Give the virtual packages: name, version, build.

    The instruction set is the architecture's common one where no site says more: packages for newer processors are not
    chosen because the login node has one.
    """
    rows = [("__unix", "0", "0"), ("__linux", OLDEST_KERNEL, "0"), ("__archspec", "1", target.archspec or target.arch)]
    rows += [("__glibc", target.glibc, "0")] if target.glibc else []
    rows += [("__cuda", target.cuda, "0")] if target.cuda else []
    return tuple(rows)


def parse_glibc(text: str) -> str:
    """Read the version out of ``getconf GNU_LIBC_VERSION`` or the first line of ``ldd --version``; empty: no glibc."""
    lines = text.strip().splitlines()
    if not lines or "musl" in text or not re.search(r"(?i)glibc|gnu libc|ldd", lines[0]):
        return ""
    found = re.findall(r"(?<![\w.])2\.\d+(?:\.\d+)?", lines[0])
    return found[-1] if found else ""


def parse_cuda(text: str) -> str:
    """Check a version of CUDA.

    Raises
    ------
    UsageError
        When it is none.
    """
    if text and not re.fullmatch(r"\d{1,2}(\.\d{1,2})?", text):
        raise UsageError(f"'{text}' is no version of CUDA", hint="write --cuda 12.8")
    return text


class CondaPlan(msgspec.Struct, frozen=True):
    """What conda is to choose from, and what.

    Attributes
    ----------
    channels
        Addresses, the first wins; may hold credentials.
    names
        Packages that must be there.
    constraints
        What is asked of them, as conda writes it.
    direct
        Packages asked for with their channel or address: these cannot be constraints.
    asked
        The specifications with their lines, for messages.
    priority
        rattler's word for how channels compete.
    pins
        Packages to the byte: then nothing is chosen, and no channel is read.
    """

    channels: tuple[str, ...]
    names: tuple[str, ...]
    constraints: tuple[str, ...]
    direct: tuple[str, ...]
    virtual: tuple[VirtualPackage, ...]
    platform: str
    asked: tuple[CondaSpec, ...] = ()
    priority: str = "Strict"
    config: str = ""
    notes: tuple[str, ...] = ()
    pins: tuple[CondaPin, ...] = ()

    def __repr__(self) -> str:
        """Leave the channels out: their addresses may hold logins."""
        return f"CondaPlan(names={self.names!r}, constraints={self.constraints!r})"


def plan_conda(
    recipe: Recipe, condarc: Condarc, target: CondaTarget, *, environment: Mapping[str, str], cwd: Path
) -> CondaPlan:
    """Plan the conda part of a recipe.

    Raises
    ------
    UsageError
        For a channel that is none.
    """
    if recipe.conda_pins:
        return _plan_pins(recipe, condarc, target, environment, cwd)
    asked = (*recipe.interpreter, *recipe.conda)
    channels, notes = _channels(recipe, condarc)
    addresses = plan_channels(channels, condarc, environment=environment, cwd=cwd)
    direct = [spec for spec in asked if spec.channel or dict(spec.extra).get("url")]
    plain = [spec for spec in asked if spec not in direct]
    # A package of a channel that is not listed is looked for there, as conda does.
    own = [address for spec in direct for address in _addresses_of(spec, condarc, cwd)]
    return CondaPlan(
        channels=tuple(dict.fromkeys((*addresses, *own))),
        names=tuple(dict.fromkeys((*(spec.name for spec in plain), *_implied(recipe, asked)))),
        constraints=tuple(
            text for spec in (*plain, *recipe.conda_limits) if (text := render_conda_spec(spec)) != spec.name
        ),
        direct=tuple(render_conda_spec(_placed(spec, condarc, cwd)) for spec in direct),
        virtual=plan_virtual_packages(target),
        platform=target.subdir,
        asked=asked,
        priority=condarc.priority,
        config=_render_config(condarc, environment, cwd),
        notes=tuple(notes),
    )


def _addresses_of(spec: CondaSpec, condarc: Condarc, cwd: Path) -> tuple[str, ...]:
    """Give the addresses of the channel that a package is asked for with; none where no channel is named."""
    names = condarc.defaults if spec.channel == "defaults" else (spec.channel,) if spec.channel else ()
    return tuple(channel_address(name, condarc, cwd) for name in names)


def _placed(spec: CondaSpec, condarc: Condarc, cwd: Path) -> CondaSpec:
    """Name a channel by its address, where the configuration has it elsewhere: rattler knows Anaconda's places only.

    Of the channels that ``defaults`` stands for it is the first one, as rattler takes no list.
    """
    address = next(iter(_addresses_of(spec, condarc, cwd)), "")
    return spec if address in ("", f"{ALIAS}/{spec.channel}") else replace(spec, channel=address)


def _plan_pins(
    recipe: Recipe, condarc: Condarc, target: CondaTarget, environment: Mapping[str, str], cwd: Path
) -> CondaPlan:
    """Plan the installation of what is named to the byte."""
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
    """Give what is asked of conda by name, as conda writes it, without credentials: its history tells it."""
    asked = (render_conda_spec(spec) for spec in (*recipe.interpreter, *recipe.conda))
    return recipe.requested or tuple(dict.fromkeys(map(redact, asked))) if recipe.wants_conda else ()


def _channels(recipe: Recipe, condarc: Condarc) -> tuple[tuple[Channel, ...], list[str]]:
    if any(channel.name != "nodefaults" for channel in recipe.channels):
        return recipe.channels, []
    if condarc.channels:
        return tuple(Channel(name, Where(condarc.files[-1], 1)) for name in condarc.channels), []
    note = f"no channel is named: {FALLBACK} is used"
    return (Channel(FALLBACK, Where("", 0)),), [note]


def _implied(recipe: Recipe, asked: tuple[CondaSpec, ...]) -> list[str]:
    """Give what a pip section needs and nobody named: conda adds pip too."""
    named = {spec.name for spec in asked}
    return [name for name in ("python", "pip") if recipe.pip and name not in named]


def _render_config(condarc: Condarc, environment: Mapping[str, str], cwd: Path) -> str:
    """Render rattler's configuration as TOML: how the network is reached."""
    lines: list[str] = []
    if condarc.verify.lower() == "false":
        lines.append("tls-no-verify = true")
    # The bundled roots know no site's own authority; the system's store does, and follows SSL_CERT_FILE.
    elif certificates(condarc, environment):
        lines.append('tls-root-certs = "system"')
    if condarc.mirrors:
        lines.append("[mirrors]")
        for name, others in condarc.mirrors:
            addresses = [channel_address(other, condarc, cwd) for other in others]
            lines.append(f"{json.dumps(channel_address(name, condarc, cwd))} = {json.dumps(addresses)}")
    return "\n".join(lines)


def certificates(condarc: Condarc, environment: Mapping[str, str]) -> str:
    """Give the file of certificates that the machine's settings name; empty: none."""
    named = condarc.verify if "/" in condarc.verify else ""
    return named or next(
        (environment[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if environment.get(name)), ""
    )


def render_request(plan: CondaPlan, *, cache: Path, tree: Path, prefix: str, spare: Path | None = None) -> str:
    """Render what the worker reads; it may hold credentials, so it goes through a pipe only.

    Parameters
    ----------
    tree
        Where the files are put.
    prefix
        Where they will be found: what they name.
    spare
        A second folder of unpacked packages, which is only read.
    """
    return json.dumps(
        {
            "channels": plan.channels,
            "names": plan.names,
            "constraints": plan.constraints,
            "direct": plan.direct,
            "hashes": _hashes_of_direct(plan),
            "pins": [
                [pin.name, pin.version, pin.build, _without_stars(pin.url), pin.sha256, pin.md5] for pin in plan.pins
            ],
            "virtual": plan.virtual,
            "platform": plan.platform,
            "priority": plan.priority,
            "config": plan.config,
            "cache": str(cache),
            "spare": str(spare or ""),
            "tree": str(tree),
            "prefix": prefix,
        }
    )


def _without_stars(url: str) -> str:
    """Give an address from a lock, where a login was struck out, as it is without one; any other as it is."""
    return without_login(url) if STARS in url else url


def _hashes_of_direct(plan: CondaPlan) -> dict[str, str]:
    """Give what packages named by their address must hash to; it stands behind the address or in brackets."""
    hashes: dict[str, str] = {}
    for spec in plan.asked:
        extra = dict(spec.extra)
        url, _, behind = extra.get("url", "").partition("#")
        if url and (wanted := behind.removeprefix("sha256:") or extra.get("sha256", "") or extra.get("md5", "")):
            hashes[url] = wanted.lower()
    return hashes
