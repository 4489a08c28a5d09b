"""The table of commands; a command's module is imported when it is chosen, so `--help` costs nothing of it."""

from __future__ import annotations

import importlib
import os

import click

from argosy.version import VERSION

COMMANDS: dict[str, tuple[str, str]] = {
    "build": ("argosy.cli.cmd_build:build", "Build an image from an environment file over a base."),
    "wrap": ("argosy.cli.cmd_wrap:wrap", "Wrap an environment or image, so that its commands feel installed."),
    "lock": ("argosy.cli.cmd_lock:lock", "Choose versions once: a lock, built again to the byte."),
    "bundle": ("argosy.cli.cmd_lock:bundle", "Put base, packages and lock into one archive, to build offline."),
    "run": ("argosy.cli.cmd_run:run", "Run a command in an image, here and now."),
    "shell": ("argosy.cli.cmd_run:shell", "Open a shell in an image."),
    "launch": ("argosy.cli.cmd_launch:launch", "Launch a distributed program in an image."),
    "explain": ("argosy.cli.cmd_explain:explain", "Explain a launch: every value with its reason and source."),
    "jobs": ("argosy.cli.cmd_jobs:jobs", "List your jobs, why one waits, when it starts."),
    "logs": ("argosy.cli.cmd_jobs:logs", "Print what a job writes; -f follows it to its end."),
    "cancel": ("argosy.cli.cmd_jobs:cancel", "Cancel jobs."),
    "attach": ("argosy.cli.cmd_jobs:attach", "Open a shell in the container of a running job."),
    "queues": ("argosy.cli.cmd_jobs:queues", "List partitions, free nodes and your accounts."),
    "verify": ("argosy.cli.cmd_verify:verify", "Tell what a run proved: network, GPUs, cores."),
    "bench": ("argosy.cli.cmd_bench:bench", "Measure what a job gets: bandwidths; and what a start costs."),
    "why": ("argosy.cli.cmd_why:why", "Explain why a job failed, from what it printed."),
    "check": ("argosy.cli.cmd_check:check", "Tell whether an image will work at a site, before the queue."),
    "prove": ("argosy.cli.cmd_prove:prove", "Try what plans assume of a site, by one small job."),
    "images": ("argosy.cli.cmd_images:images", "Keep images by name, tell what is in one, hand them on."),
    "cache": ("argosy.cli.cmd_cache:cache", "Tell what the cache holds, and remove what is not needed."),
    "sites": ("argosy.cli.cmd_sites:sites", "Show, check, compare and make profiles of sites."),
    "compat": ("argosy.cli.cmd_compat:compat", "Install commands of other tools, answered by Argosy."),
    "doctor": ("argosy.cli.cmd_doctor:doctor", "Look at this machine: what is missing, and what would hurt."),
    "completion": ("argosy.cli.cmd_completion:completion", "Print the completion script of a shell."),
}
"""Name -> where the command is, and its line in the help."""

RUNS_A_PROGRAM = frozenset({"run", "shell", "launch", "attach"})
"""Commands whose exit code is the user's program's."""


class Commands(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Give the names in the order of a user's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the help's list from the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take ``argosy help COMMAND`` for ``argosy COMMAND --help``, as git has it."""
        asks_help = args[:1] == ["help"]
        return super().parse_args(ctx, [*args[1:], "--help"] if asks_help else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from argosy.core.suggest import suggest_word  # noqa: PLC0415 - a typo only

            near = suggest_word(args[0], COMMANDS)
            more = f"Did you mean '{near}'?" if near else f"Known: {', '.join(COMMANDS)}."
            raise click.UsageError(f"{error.message} {more}", ctx) from error


def _help_width() -> int:
    """Give the width of help in columns: the terminal's, between 50 and 108.

    click would ask `shutil`, which loads three compression libraries: a tenth of the file-system calls of ``--help``.
    """
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        columns = 80
    return max(50, min(columns, 110) - 2)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "terminal_width": _help_width()})
@click.version_option(VERSION, message="argosy %(version)s")
def app() -> None:
    """From an environment file to a verified GPU run in a container.

    \b
    argosy build environment.yml --base debian:bookworm -o my.sif
    argosy run my.sif -- python -c 'import torch'
    argosy launch my.sif --ranks 2 -- python train.py
    """  # noqa: D301 - click's mark for "do not wrap"
