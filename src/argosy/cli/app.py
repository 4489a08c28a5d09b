"""The table of commands. A command's module is imported when the command is chosen, so that `--help` is fast."""

from __future__ import annotations

import importlib
import os

import click

from argosy.version import VERSION

COMMAND_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Build": {
        "init": ("argosy.cli.cmd_init:init", "Start a project: argosy.toml, requirements.txt and a program that runs."),
        "build": ("argosy.cli.cmd_build:build", "Build an image from environment files over a base image."),
        "lock": ("argosy.cli.cmd_lock:lock", "Resolve versions once and write them to a lock file."),
        "bundle": ("argosy.cli.cmd_lock:bundle", "Pack base, packages and lock into one archive for offline builds."),
        "wrap": ("argosy.cli.cmd_wrap:wrap", "Wrap the commands of an environment or image as plain programs."),
    },
    "Run": {
        "run": ("argosy.cli.cmd_run:run", "Run a command in an image on this machine."),
        "shell": ("argosy.cli.cmd_run:shell", "Open a shell in an image on this machine."),
        "sessions": ("argosy.cli.cmd_run:sessions", "List and stop detached shells."),
        "launch": ("argosy.cli.cmd_launch:launch", "Launch a distributed program in an image, by Slurm or here."),
        "import": (
            "argosy.cli.cmd_import:import_job",
            "Translate a hand-written job script into a job of argosy.toml.",
        ),
        "explain": ("argosy.cli.cmd_explain:explain", "Explain a launch: every value with its reason and source."),
    },
    "Jobs": {
        "jobs": ("argosy.cli.cmd_jobs:jobs", "List your jobs, why they wait and when they start."),
        "top": ("argosy.cli.cmd_top:top", "Show what the ranks of a running job do, live."),
        "logs": ("argosy.cli.cmd_jobs:logs", "Print the output of a job; -f follows it to the end."),
        "cancel": ("argosy.cli.cmd_jobs:cancel", "Cancel jobs."),
        "attach": ("argosy.cli.cmd_jobs:attach", "Open a shell in a running job or a detached session."),
        "queues": ("argosy.cli.cmd_jobs:queues", "List partitions, free nodes and your accounts."),
    },
    "Diagnose": {
        "doctor": ("argosy.cli.cmd_diagnose:doctor", "Check this machine: programs, kernel, Slurm, GPUs, variables."),
        "check": ("argosy.cli.cmd_diagnose:check", "Check whether an image will work at a site, before you submit."),
        "verify": ("argosy.cli.cmd_diagnose:verify", "Check what a run used: network, GPUs, cores."),
        "report": ("argosy.cli.cmd_diagnose:report", "Write a report of a job as one HTML page."),
        "why": ("argosy.cli.cmd_diagnose:why", "Explain why a job failed, from its output."),
        "bench": ("argosy.cli.cmd_bench:bench", "Measure networks, nodes, settings and start-up times."),
    },
    "Share": {
        "images": ("argosy.cli.cmd_images:images", "List, pull, push, inspect, compare and export images."),
        "cache": ("argosy.cli.cmd_cache:cache", "Show what the cache holds, and remove entries."),
    },
    "Sites": {"sites": ("argosy.cli.cmd_sites:sites", "List, show, check, compare and create site profiles.")},
    "Other": {
        "config": ("argosy.cli.cmd_config:config", "Show and change the defaults of options."),
        "compat": ("argosy.cli.cmd_compat:compat", "Install cotainr and tykky commands that call Argosy."),
        "completion": ("argosy.cli.cmd_config:completion", "Print the completion script of a shell."),
    },
}
"""Group in the help -> its commands: name -> module and object, and the line in the help."""

COMMANDS = {name: row for group in COMMAND_GROUPS.values() for name, row in group.items()}
"""Every command."""

RUNS_A_PROGRAM = frozenset({"run", "shell", "launch", "attach"})
"""Commands that exit with the exit code of the user's program."""


class Commands(click.Group):
    """A group that imports a command when the command is chosen."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, from the table and without an import."""
        width = max(map(len, COMMANDS))
        for group, commands in COMMAND_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``argosy help COMMAND`` as ``argosy COMMAND --help``, as git does."""
        asks_help = args[:1] == ["help"]
        return super().parse_args(ctx, [*args[1:], "--help"] if asks_help else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one if there is none of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from argosy.cli.mistakes import explain_no_command

            raise explain_no_command(args[0], "argosy", COMMANDS) from error


def _help_width() -> int:
    """Return the width of the help: the columns of the terminal, at least 50 and at most 108.

    click would use `shutil`, which imports three compression libraries.
    """
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        columns = 80
    return max(50, min(columns, 110) - 2)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "terminal_width": _help_width()})
@click.version_option(VERSION, "-V", "--version", message="argosy %(version)s")
def app() -> None:
    """Build GPU container images from environment files, and launch them on Slurm clusters.

    \b
    argosy build environment.yml --base debian:bookworm -o my.sif
    argosy run my.sif -- python -c 'import torch'
    argosy launch my.sif --ranks 2 -- python train.py
    """
