"""The words of ``cotainr build`` as a request of ours; pure.

Its words and what its images look like: https://cotainr.readthedocs.io (2025.7.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.builder.records import BuildRequest
from argosy.core.errors import UsageError
from argosy.core.layout import PrefixLayout
from argosy.core.shell import quote
from argosy.core.suggest import suggest_word
from argosy.sites.bases import System
from argosy.version import VERSION

PREFIX = "/opt/cotainr/conda/envs/conda_container_env"
"""Where programs in an image of cotainr find its environment."""
URL = "https://github.com/DeiC-HPC/cotainr"
"""What tells its images from others: whose words made them."""


class CotainrWords(msgspec.Struct, frozen=True):
    """What stands behind ``cotainr build``; those of its options that change what is built.

    Attributes
    ----------
    image_path
        The image to make.
    base_image, system
        The base, or the name that a site gave one: one of the two.
    conda_env
        An environment file; None: nothing is installed.
    force, work_dir
        Ours: cotainr asks before it overwrites, and has no place for work files.
    """

    image_path: Path
    base_image: str = ""
    system: str = ""
    conda_env: Path | None = None
    force: bool = False
    accept_licenses: bool = False


def plan_request(words: CotainrWords, systems: Mapping[str, System]) -> BuildRequest:
    """Give the request that builds what cotainr would.

    The environment is found where cotainr has it, too, so that scripts which name its folder go on working.

    Parameters
    ----------
    systems
        What ``--system`` may name.

    Raises
    ------
    UsageError
        When both or none of base image and system are named, or no site knows the system: which there are.
    """
    if bool(words.base_image) == bool(words.system):
        raise UsageError(
            "one of --base-image and --system is needed"
            if not words.system
            else "--base-image and --system exclude each other",
            hint="--base-image names the base as --base does; 'cotainr info' lists the systems",
        )
    system = _system(words.system, systems) if words.system else System(words.base_image, "")
    return BuildRequest(
        sources=(words.conda_env,) if words.conda_env else (),
        base=system.base,
        output=words.image_path.absolute(),
        force=words.force,
        site=system.site,
        prefix_layout=PrefixLayout(PREFIX, render_labels(words), own_python=True),
    )


def _system(name: str, systems: Mapping[str, System]) -> System:
    if name in systems:
        return systems[name]
    near = suggest_word(name, systems)
    raise UsageError(
        f"no site has a system {name!r}",
        evidence=f"known: {', '.join(sorted(systems)) or 'none'}; they stand in the sites' profiles",
        hint=f"did you mean --system={near}?" if near else "name the base itself: --base-image=BASE",
    )


def render_labels(words: CotainrWords) -> tuple[tuple[str, str], ...]:
    """Give the labels that cotainr's images have, with what made this one in their place."""
    command = ["cotainr", "build", str(words.image_path)]
    command += [f"--base-image={words.base_image}"] if words.base_image else []
    command += [f"--system={words.system}"] if words.system else []
    command += [f"--conda-env={words.conda_env}"] if words.conda_env else []
    command += ["--accept-licenses"] if words.accept_licenses else []
    return (
        ("cotainr.command", " ".join(map(quote, command))),
        ("cotainr.version", f"answered by argosy {VERSION}"),
        ("cotainr.url", URL),
    )
