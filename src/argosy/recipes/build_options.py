"""The options of a build: one row for each.

The command line, the keys of ``[image]`` in ``argosy.toml``, the arguments of `argosy.api.build` and the reference
pages are made from these rows (see `argosy.recipes.launch_options`).

Annotations are the table: this module must not have ``from __future__ import annotations``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, TypedDict

from argosy.recipes.option_row import BASE, IMAGE, NODE, PACKAGES, OneOrMore, Row, rows

DEFAULT_BASE = "debian:bookworm"
"""Base of an image if none is given."""

PYTHON_BASE = "docker://python:3.11-slim-bookworm"
"""Image similar to the default base, with its Python; it needs neither mmdebstrap nor subordinate user ids."""

BUILD_BACKENDS = ("root", "userns", "apptainer", "singularity", "proot")
"""Names of the build backends, best first."""

FLATTENED = {"flat": True, "delta": False}
"""Value of ``--format`` for a SIF file -> whether base and layer are one partition."""


class PackageOptions(TypedDict, total=False):
    """Options that choose packages."""

    # fmt: off
    site: Annotated[str, Row(PACKAGES,
        "Site that the image is for; it chooses the build of torch for the site's GPUs.", "NAME", kind="site")]
    cuda: Annotated[str, Row(PACKAGES,
        "CUDA version of the nodes' driver; conda uses it to choose GPU builds.", "VERSION")]
    torch_backend: Annotated[str, Row(PACKAGES,
        "PyTorch index: cu128, rocm6.4, xpu, cpu or none. Default: depends on the site. [uv: --torch-backend]", "NAME")]
    no_build_isolation: Annotated[OneOrMore, Row(PACKAGES,
        "Build this package last, against the installed packages; repeatable. [pip: --no-build-isolation]",
        "NAME", field="unisolated")]
    allow_replace: Annotated[OneOrMore, Row(PACKAGES,
        "Package of the base that another version may replace; repeatable.", "NAME", field="replaceable")]
    # fmt: on


class InstallOptions(PackageOptions, total=False):
    """Options of the commands that install packages over a base: build, lock and bundle."""

    # fmt: off
    base: Annotated[str, Row(BASE,
        f"Base image: a SIF, squashfs, folder, tar, docker://NAME or debian:SUITE[+PACKAGE…]. Default: {DEFAULT_BASE}.",
        "BASE")]
    arch: Annotated[str, Row(BASE,
        "Architecture of the image, for example aarch64. Default: the site's, else this machine's.",
        "NAME", synonyms=("--platform",), toml=False)]
    file: Annotated[str, Row(BASE,
        "The Dockerfile, if SOURCE is its folder. [docker: --file]",
        "FILE", "-f", record="engine", field="dockerfile", toml=False)]
    build_arg: Annotated[Mapping[str, str], Row(BASE,
        "Build argument of a definition file or Dockerfile; repeatable. [docker: --build-arg]",
        "NAME=VALUE", record="engine", field="arguments")]
    build_backend: Annotated[str, Row(BASE,
        "Method to run programs in the base during the build. Default: the first method that works here.",
        field="backend", choices=BUILD_BACKENDS)]
    work_dir: Annotated[str, Row(BASE,
        "Folder for temporary files. Default: TMPDIR or the cache.", "DIR", record="call", toml=False)]
    # fmt: on


class BuildOptions(InstallOptions, total=False):
    """Options of `argosy build` that describe the image."""

    # fmt: off
    locked: Annotated[str | bool, Row(PACKAGES,
        "Install exactly the versions in a lock file or in an image's lock (default argosy.lock).",
        "[LOCK]", bare="argosy.lock", toml=False)]
    bundle: Annotated[str, Row(PACKAGES,
        "Build from a bundle, without a network.", "FILE", record="call", toml=False, kind="file")]
    force: Annotated[bool, Row(IMAGE, "Replace the output if it exists.", toml=False)]
    format: Annotated[str, Row(IMAGE,
        "Format of the output. Default: sqsh for an output NAME.sqsh, else sif. A SIF file is flat (one partition) or "
        "delta (base and layer); sif chooses by the base.",
        field="form", choices=("sif", "flat", "delta", "sqsh", "layer", "oci", "oci-archive", "docker-archive"))]
    no_cache: Annotated[bool, Row(IMAGE,
        "Do not use the cache: copy no earlier image, reuse no layer of a Dockerfile. [docker: --no-cache]",
        record="engine", toml=False)]
    # fmt: on


_node = partial(Row, NODE, record="call")


class NodeJobOptions(TypedDict, total=False):
    """Options of the job in which an image is built."""

    # fmt: off
    account: Annotated[str, _node("Account to charge. [Slurm: --account]", "NAME", "-A")]
    partition: Annotated[str, _node("Partition. Default: the site's. [Slurm: --partition]", "NAME", "-p")]
    qos: Annotated[str, _node("Quality of service. Default: the site's. [Slurm: --qos]", "NAME")]
    time: Annotated[str, _node(
        "Time limit. Default: the site's, else 1 hour. [Slurm: --time]", "TIME", "-t", kind="time")]
    mem: Annotated[str, _node("Memory. Default: the site's. [Slurm: --mem]", "SIZE")]
    cpus: Annotated[int, _node("Cores. Default: the site's. [Slurm: --cpus-per-task]", "N", "-c", ("--cpus-per-task",))]
    # fmt: on


PACKAGE_ROWS = rows(PackageOptions)
BUILD_ROWS = rows(BuildOptions)
NODE_ROWS = rows(NodeJobOptions)
"""The rows by name."""
