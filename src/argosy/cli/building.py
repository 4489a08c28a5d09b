"""Options of the commands that install packages (build, lock, bundle), and the request that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from argosy.builder.backends.backends import CARRIERS
from argosy.builder.bases.engines import EngineOptions
from argosy.builder.report import BuildRequest
from argosy.builder.request import NO_PATH, split_sources
from argosy.cli.common import SITE, Decorated

PACKAGE_OPTIONS = {
    "cuda": "--cuda",
    "site": "--site",
    "torch_backend": "--torch-backend",
    "unisolated": "--no-build-isolation",
    "replaceable": "--allow-replace",
}
"""What `package_options` adds: the name that a request has for it -> the option."""


def package_options(command: Decorated) -> Decorated:
    """Add the options that say how packages are chosen."""
    for option in reversed(
        (
            click.option("--cuda", default="", metavar="VERSION",
                         help="CUDA of the nodes' driver: conda chooses its GPU builds."),
            click.option("--site", type=SITE, default="", metavar="NAME",
                         help="The site it is for: torch comes with its GPUs' back end."),
            click.option("--torch-backend", default="", metavar="NAME",
                         help="cu128, rocm6.4, xpu, cpu, none.  [default: the site's]"),
            click.option("--no-build-isolation", "unisolated", multiple=True, metavar="NAME",
                         help="Built last, against what is installed."),
            click.option("--allow-replace", "replaceable", multiple=True, metavar="NAME",
                         help="A package of the base that may be replaced."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def building_options(command: Decorated) -> Decorated:
    """Add the options that say what is installed over which base, and where the work is done."""
    for option in reversed(
        (
            click.option("--base", default="", metavar="BASE",
                         help="SIF, squashfs, folder, tar, docker://NAME, debian:SUITE[+package…]."),
            click.option("--arch", default="", metavar="NAME",
                         help="aarch64, x86_64, …: the machines it is for.  [default: the site's]"),
            click.option("--work-dir", default="", metavar="DIR",
                         help="Folder for work files.  [default: TMPDIR or the cache]"),
            click.option("--carrier", type=click.Choice(CARRIERS), default=None, help="How programs run in the base."),
            click.option("-f", "--file", default="", metavar="FILE",
                         help="The Dockerfile, where a SOURCE is its folder."),
            click.option("--build-arg", "arguments", multiple=True, metavar="NAME=VALUE",
                         help="For a definition or Dockerfile."),
            package_options,
        )
    ):  # fmt: skip
        command = option(command)
    return command


def make_build_request(sources: tuple[str, ...], output: Path | None, given: dict[str, Any]) -> BuildRequest:
    """Make the request of these options' values.

    Raises
    ------
    UsageError
        When several bases are named.
    """
    files, base = split_sources(sources, given["base"])
    return BuildRequest(
        files,
        base,
        output.absolute() if output else NO_PATH,
        backend=given["carrier"] or "",
        arch=given["arch"],
        engine=EngineOptions(given["arguments"], given["file"]),
        **{name: given[name] for name in PACKAGE_OPTIONS},
    )
