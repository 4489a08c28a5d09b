"""Plan a build on a compute node: the same command line, as a step or a job of Slurm; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from argosy.errors import UsageError
from argosy.launch.at_site import refuse_missing_options
from argosy.process import Words
from argosy.records import replace
from argosy.schedulers.slurm import JobOptions, choose_defaults, render_directive
from argosy.shell import quote
from argosy.sites import Site

USUAL_TIME = "01:00:00"
"""Asked for where neither user nor profile says how long a build may take, as HH:MM:SS."""

FLAGS = frozenset({"--on-node", "--submit"})
VALUED = frozenset({"--account", "--partition", "--qos", "--time", "--mem", "--cpus"})
"""Options of the job: the build on the node does not get them."""

OF_THE_RECIPE = frozenset(
    {"--base", "--locked", "--cuda", "--site", "--file", "-f", "--build-arg", "--bundle", "--torch-backend"}
    | {"--no-build-isolation", "--allow-replace"}
)
"""Options that a bundle has answered."""


class NodeWishes(msgspec.Struct, frozen=True):
    """What the user asks of the job; empty leaves it to the user's ``SBATCH_*``, then to the profile.

    Attributes
    ----------
    cpus
        Cores; 0 leaves them to the profile.
    """

    account: str = ""
    partition: str = ""
    qos: str = ""
    time: str = ""
    mem: str = ""
    cpus: int = 0


def plan_node_options(wishes: NodeWishes, site: Site, environment: Mapping[str, str]) -> Words:
    """Give the options of a job of one node in which an image is built, for srun and sbatch.

    Raises
    ------
    UsageError
        When the site has no Slurm.
    SiteError
        When it requires an option that nobody gave.
    """
    if site.scheduler != "slurm":
        raise UsageError(
            f"{site.name} has no compute nodes: --on-node and --submit need a site with Slurm",
            hint="name it with --site, or leave the option out: the image is then built here",
        )
    place = site.build
    asked = JobOptions(wishes.account, wishes.partition, wishes.qos, wishes.time, wishes.mem)
    asked = replace(asked, **choose_defaults(asked, environment))  # type: ignore[arg-type]  # names of text fields
    # A partition of the user's own has QOS and limits of its own.
    theirs = bool(asked.partition)
    options = replace(
        asked,
        partition=asked.partition or place.partition,
        qos=asked.qos or ("" if theirs else place.qos),
        time=asked.time or place.time or USUAL_TIME,
        mem=asked.mem or place.mem,
        exclusive=place.exclusive,
    )
    refuse_missing_options(options, site)
    cpus = wishes.cpus or place.cpus
    return (
        "--job-name=argosy-build",
        *("--nodes=1", "--ntasks=1"),
        *((f"--cpus-per-task={cpus}",) if cpus else ()),
        *_gpus(site),
        *options.lines(),
    )


def _gpus(site: Site) -> Iterator[str]:
    if site.build.gpus and site.slurm.gpu_option != "none":
        kind = "gres=gpu:" if site.slurm.gpu_option == "gres" else "gpus-per-node="
        yield f"--{kind}{site.build.gpus}"


def plan_node_words(words: Sequence[str], *, work_dir: str = "", bundle: str = "") -> Words:
    """Give the words of `argosy build` on the node: what the user typed, less what is about the job.

    Parameters
    ----------
    work_dir
        Folder for work files there; empty leaves it to Argosy.
    bundle
        What was downloaded here; empty: the node downloads itself.
    """
    kept = _without(words, FLAGS, VALUED)
    if bundle:
        kept = (*_without(kept, frozenset({"--no-cache"}), OF_THE_RECIPE, sources=False), "--bundle", bundle)
    return (*kept, *(("--work-dir", work_dir) if work_dir else ()))


TAKES_ONE = frozenset({"-o", "--output", "--format", "--work-dir", "--carrier"}) | OF_THE_RECIPE
MAY_TAKE_ONE = "--locked"
"""Takes the word behind it unless that is an option."""


def _without(words: Sequence[str], flags: frozenset[str], valued: frozenset[str], *, sources: bool = True) -> Words:
    """Leave options out, and their values; `sources` tells whether words that belong to no option stay."""
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        alone = equals or not rest or (name == MAY_TAKE_ONE and rest[0].startswith("-"))
        value = [rest.pop(0)] if name in TAKES_ONE | valued and not alone else []
        if name not in flags | valued and (sources or word.startswith("-")):
            kept += [word, *value]
    return tuple(kept)


def render_node_script(
    options: Words, command: Words, *, output: str, title: str, bundle: str = "", unload: Words = ()
) -> str:
    """Render the job that builds an image; `bundle` is removed at its end, modules that break builds go before it."""
    lines = [
        "#!/bin/sh",
        *map(render_directive, (*options, f"--output={output}")),
        f"# {' '.join(title.split())}",
        "set -eu",
        'echo "on $(hostname): $(date)"',
    ]
    if unload:
        lines += [
            "# These modules break builds: their variables name folders that an image does not have.",
            f"if command -v module >/dev/null 2>&1; then module unload {' '.join(map(quote, unload))} || :; fi",
        ]
    run = " ".join(map(quote, command))
    if bundle:
        lines += [f"code=0; {run} || code=$?", f"rm -f {quote(bundle)}", 'exit "$code"']
    else:
        lines.append(f"exec {run}")
    return "\n".join(lines) + "\n"
