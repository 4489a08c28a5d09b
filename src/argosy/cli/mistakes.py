"""Explain mistakes on the command line, and answer commands and options of other tools; loaded only after an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import click

from argosy.cli.app import RUNS_A_PROGRAM, app
from argosy.core.errors import UsageError
from argosy.core.suggest import suggest_word
from argosy.slurm.sbatch import HETEROGENEOUS_HINT
from argosy.slurm.sbatch_options import NATIVE_OPTIONS, SBATCH_FLAGS

COMMAND_HINTS: Mapping[str, str] = {
    "exec": "argosy run IMAGE -- COMMAND; in a running job: argosy attach JOB -- COMMAND",
    "pull": "argosy images pull docker://NAME",
    "push": "argosy images push IMAGE oras://REGISTRY/NAME",
    "inspect": "argosy images info IMAGE",
    "info": "argosy images info IMAGE",
    "status": "argosy jobs",
    "ps": "argosy jobs",
    "squeue": "argosy jobs",
    "list": "argosy images ls, argosy jobs or argosy sites ls",
    "ls": "argosy images ls, argosy jobs or argosy sites ls",
    "show": "argosy images info IMAGE, argosy jobs show JOB or argosy sites show NAME",
    **dict.fromkeys(("rm", "remove", "delete"), "argosy images rm NAME, or argosy cache gc"),
    "create": "argosy build FILE -o IMAGE",
    "start": "argosy launch IMAGE -- COMMAND",
    "stop": "argosy cancel JOB, or argosy sessions stop NAME",
    "submit": "argosy launch IMAGE -- COMMAND",
    "sbatch": "argosy launch IMAGE -- COMMAND; to translate a job script: argosy import job.sh",
    "srun": "argosy launch IMAGE -- COMMAND; in an allocation, add --in-allocation",
    "torchrun": "argosy launch IMAGE --launcher torchrun -- COMMAND",
    "mpirun": "argosy launch IMAGE --launcher mpi -- COMMAND",
    "salloc": "argosy launch IMAGE --interactive",
    "scancel": "argosy cancel JOB",
    "kill": "argosy cancel JOB",
    "sinfo": "argosy queues",
    "partitions": "argosy queues",
    "new": "argosy wrap new for a wrapped environment, argosy sites new for a site profile",
    "install": "argosy wrap environment.yml --prefix DIR",
    "clean": "argosy cache gc",
    "freeze": "argosy images freeze IMAGE",
    "export": "argosy images export IMAGE --format FORMAT -o FILE",
    "diff": "argosy images diff ONE OTHER",
    "docker": "argosy run IMAGE -- COMMAND; docker starts it with --runtime docker",
    "podman": "argosy run IMAGE -- COMMAND; podman starts it with --runtime podman",
    "podman-hpc": "argosy run IMAGE -- COMMAND; podman-hpc starts it with --runtime podman-hpc",
    "apptainer": "argosy run IMAGE -- COMMAND; argosy shell IMAGE",
    "singularity": "argosy run IMAGE -- COMMAND; argosy shell IMAGE",
    "enroot": "argosy run IMAGE -- COMMAND; enroot starts it with --runtime enroot",
    "migrate": "argosy images pull docker://NAME",
    "convert": "argosy images export IMAGE --format FORMAT -o FILE",
    "diagnose": "argosy why JOB",
    "preflight": "argosy check IMAGE --site NAME",
    "version": "argosy --version",
    "docs": "argosy COMMAND --help",
}
"""Command of another tool -> what to type."""

GPU_HINT = "GPUs are available in the container without an option; --gpu {} forces this method"
TERMINAL_HINT = "no option is needed: the container uses your terminal"
SITE_FLAGS_HINT = "the site's profile adds the flags of podman-hpc: argosy launch IMAGE --site NAME -- COMMAND"
INDEX_HINT = "write it on a line of requirements.txt, as for pip; for PyTorch's own index use --torch-backend"
COMMAND_HINT = "argosy wrap selects programs with -w PROGRAM,…; other commands accept a command after --"
ENV_HINT = "use --env NAME=VALUE for a variable, or --error FILE for Slurm's error stream"

OPTION_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("--index-url", "--extra-index-url", "--find-links"), INDEX_HINT),
    "--dev": "start argosy shell IMAGE --dev, or argosy run IMAGE --dev, in the allocation; launch has --with",
    "--explain": "argosy explain, with the arguments of the launch, prints the source of each value",
    "--nv": GPU_HINT.format("nv"),
    "--rocm": GPU_HINT.format("rocm"),
    "--nvccli": GPU_HINT.format("nvccli"),
    "--device": GPU_HINT.format("cdi"),
    **dict.fromkeys(("--command", "--commands"), COMMAND_HINT),
    "-i": TERMINAL_HINT,
    "-it": TERMINAL_HINT,
    "-t": TERMINAL_HINT,
    "--tty": TERMINAL_HINT,
    "-e": ENV_HINT,
    "--volume": "use --bind SRC:DST",
    "--mount": "use --bind SRC:DST",
    "--cleanenv": "software variables of the host do not enter the container; use --contain to hide its folders",
    "--containall": "use --contain",
    "--overlay": "use --dev to make the image writable",
    "--writable": "use --dev to make the image writable",
    "--writable-tmpfs": "use --dev to make the image writable",
    "--fakeroot": "use --dev --fakeroot of 'argosy run' to be root in the container",
    "--mpich": SITE_FLAGS_HINT,
    "--cuda-mpi": SITE_FLAGS_HINT,
    "--nccl": SITE_FLAGS_HINT,
    "--cvmfs": SITE_FLAGS_HINT,
    "--rm": "no option is needed: the container leaves nothing behind",
    "--entrypoint": "give the command after --: argosy run IMAGE -- COMMAND",
    "--gpus-per-task": "use --gpus-per-node N; add --sbatch-arg=--gpu-bind=single:1 for one GPU per rank",
    "--ntasks-per-gpu": "use --ranks N; the default is one rank per GPU",
    "--mem-per-cpu": "use --mem SIZE per node, or --mem-per-gpu SIZE",
    "--dependency": "use --after JOBS, or --sbatch-arg=--dependency=…",
    "--wrap": "give the command after --: argosy launch IMAGE -- COMMAND",
    "--wait": "use --follow",
    "--export": "use --env NAME=VALUE",
    "--container-image": "give the image as the first argument: argosy launch IMAGE -- COMMAND",
    "--container-mounts": "use --bind SRC:DST",
    "--cpu-bind": "Argosy binds ranks to cores by the site's profile; 'argosy explain' shows how",
    "--gpu-bind": "use --sbatch-arg=--gpu-bind=…; without it, each rank sees all GPUs of its node",
    **dict.fromkeys(("--het-group", "--pack-group"), f"Argosy starts no heterogeneous jobs: {HETEROGENEOUS_HINT}"),
    "--standalone": "no option is needed: Argosy sets up the rendezvous",
    "--rdzv-endpoint": "no option is needed: Argosy sets up the rendezvous",
    "--rdzv-backend": "no option is needed: Argosy sets up the rendezvous",
    "--rdzv-id": "no option is needed: Argosy sets up the rendezvous",
    "--master-addr": "no option is needed: Argosy sets MASTER_ADDR",
    "--master-port": "no option is needed: Argosy sets MASTER_PORT",
    "--node-rank": "no option is needed: Argosy sets the rank of each node",
    "--max-restarts": "use --torchrun-arg=--max-restarts=N",
    "--tee": "use --torchrun-arg=--tee=3, or --log-dir DIR",
    "--tag": "use -o FILE; 'argosy images pull FILE NAME:TAG' adds it to the catalog",
    **dict.fromkeys(("-r", "--requirement"), "give the file itself: argosy build requirements.txt -o IMAGE"),
    "--prefix": "argosy wrap FILE --prefix DIR installs into a folder",
}
"""Option of another tool that Argosy does not have -> what to do."""


def explain_mistake(error: click.ClickException, arguments: Sequence[str]) -> UsageError:
    """Return the error for a command line that click cannot parse.

    Parameters
    ----------
    arguments
        The whole command line.
    """
    context = (error.ctx if isinstance(error, click.UsageError) else None) or _find_context(arguments)
    path = context.command_path
    see = f"see '{path} --help'"
    match error:
        case click.NoSuchOption():
            return _explain_no_option(error, path, arguments)
        case click.MissingParameter():
            return _explain_missing(error, context)
        case click.BadOptionUsage():
            return UsageError(f"{path}: {error.option_name} needs a value", hint=f"{_show_value(error, context)}{see}")
        case click.BadParameter():
            name = _parameter_name(error.param) or str(error.param_hint or "value")
            what = f"invalid {name}: {_explain_range(_sentence(error.message))}"
            return UsageError(what, hint=_hint_for_value(error, name) or see)
    extra = re.match(r"Got unexpected extra arguments? \((.*?)\)", error.format_message(), re.DOTALL)
    if extra:
        return UsageError(f"{path}: unexpected argument {extra[1]!r}", hint=see)
    return UsageError(f"{path}: {_sentence(error.format_message())}", hint=see)


CHOICE_HINTS = {"cuda": "nv", "nvidia": "nv", "amd": "rocm", "squashfs": "sqsh", "tar": "oci-archive", "docker": "oci"}
"""Value of another tool -> the choice that means it."""


def _hint_for_value(error: click.BadParameter, name: str) -> str:
    """Return a hint for a value that an option does not accept; empty if there is none."""
    if name in {"--gpus", "--gpus-per-node"} and error.message.startswith("0 "):
        return "use --gpu none for a job without GPUs"
    near = _nearest_choice(error)
    return f"did you mean {near}?" if near else ""


def _nearest_choice(error: click.BadParameter) -> str:
    """Return the choice that the user probably meant; empty if the parameter has no choices or none is similar."""
    choices = error.param.type.choices if error.param and isinstance(error.param.type, click.Choice) else ()
    match = re.match(r"'(.*)' is not one of", error.message)
    given = match[1] if match else ""
    known = CHOICE_HINTS.get(given, "")
    return known if known in choices else suggest_word(given, map(str, choices))


def _find_context(arguments: Sequence[str]) -> click.Context:
    """Return the context of the command of a line, for an error for which click has none."""
    context = click.Context(app, info_name="argosy")
    for name in arguments[1:]:
        command = context.command
        found = command.get_command(context, name) if isinstance(command, click.Group) else None
        if found is None:
            break
        context = click.Context(found, context, info_name=name)
    return context


def _show_value(error: click.BadOptionUsage, context: click.Context) -> str:
    """Return how to write an option without its value; empty if it is not an option of the command."""
    option = next((each for each in context.command.params if error.option_name in each.opts), None)
    return f"write: {error.option_name} {option.make_metavar(context)}; " if option else ""


def _explain_range(text: str) -> str:
    """Replace click's notation of a range, for example ``x>=1``."""
    text = text.replace("integer range", "integer")
    text = re.sub(r" is not in the range x>=(\S+)", r" is smaller than \1", text)
    return re.sub(r" is not in the range x>(\S+)", r" is not larger than \1", text)


def _sentence(message: str) -> str:
    """Return a message of click in the form of Argosy's: on one line, in lower case, without a full stop."""
    text = re.sub(r"\s*\n\t?", " ", message).rstrip(".")
    return text[:1].lower() + text[1:]


def _parameter_name(parameter: click.Parameter | None) -> str:
    if isinstance(parameter, click.Option):
        return next((text for text in parameter.opts if text.startswith("--")), parameter.opts[0])
    return (parameter.metavar or str(parameter.name).upper()) if parameter else ""


def _explain_no_option(error: click.NoSuchOption, path: str, arguments: Sequence[str]) -> UsageError:
    name = error.option_name
    what = f"{path} has no option {name}"
    if answer := _answer_option(name, arguments):
        return UsageError(what, hint=answer)
    options = [each for each in error.ctx.command.params if isinstance(each, click.Option)] if error.ctx else []
    by_name = {text: each for each in options for text in each.opts if text.startswith("--")}
    plain = name.lstrip("-")
    if "--sbatch-arg" in by_name and plain in NATIVE_OPTIONS:
        return UsageError(
            what, hint=f"pass it to Slurm: --sbatch-arg={name}{'' if plain in SBATCH_FLAGS else '=VALUE'}"
        )
    # Without the dashes, which would make every pair of short names similar: --epochs and --qos.
    word = suggest_word(plain, [text.removeprefix("--") for text in by_name])
    near = f"--{word}" if word else ""
    if near and error.ctx:
        return UsageError(what, hint=f"did you mean {near}? For example: {_example(error.ctx, by_name[near], near)}")
    if path.rsplit(maxsplit=1)[-1] in RUNS_A_PROGRAM and "--" not in arguments:
        return UsageError(what, hint=f"write -- before the command: {path} IMAGE -- python train.py")
    return UsageError(what, hint=f"see '{path} --help'")


def _example(context: click.Context, option: click.Option | None, name: str) -> str:
    """Return a command line, for example ``argosy launch IMAGE --nodes N -- COMMAND``.

    Parameters
    ----------
    option, name
        An option to show, and its name.
    """
    arguments = [each for each in context.command.params if isinstance(each, click.Argument)]
    names = [_parameter_name(each) for each in arguments if each.required and each.name != "command"]
    value = "" if option is None or option.is_flag else f" {option.metavar or name.strip('-').upper()}"
    command = ["-- COMMAND"] if any(each.name == "command" for each in arguments) else []
    return " ".join([context.command_path, *names, *([name + value] if option else []), *command])


MISSING_HINTS = {
    "argosy wrap new --prefix": "for example: argosy wrap environment.yml --prefix ~/my-environment",
    "argosy bundle --output": "for example: argosy bundle environment.yml -o my-image.tar",
}
"""Command and its missing option -> a whole line."""


def _explain_missing(error: click.MissingParameter, context: click.Context) -> UsageError:
    path = context.command_path
    if path in {"argosy run", "argosy shell"}:
        hint = "write: argosy run IMAGE -- python train.py, or: argosy shell IMAGE"
        named = "command" if context.params.get("image") else "image or the command"
        return UsageError(f"{path}: the {named} is missing", hint=hint)
    name = _parameter_name(error.param) or "an argument"
    choices = error.param.type.choices if error.param and isinstance(error.param.type, click.Choice) else ()
    evidence = f"choose one of: {', '.join(map(str, choices))}" if choices else ""
    usage = _example(context, error.param if isinstance(error.param, click.Option) else None, name)
    example = MISSING_HINTS.get(f"{path} {name}", f"write: {usage}; see '{path} --help'")
    return UsageError(f"{path}: {name} is missing", evidence=evidence, hint=example)


SAME_MEANING = (
    ("ls", "list"),
    ("info", "show", "inspect", "describe", "list", "ls", "status", "cat"),
    ("gc", "clean", "clear", "prune", "purge"),
    ("rm", "remove", "delete", "del"),
    ("gc", "rm", "remove", "delete", "del"),
    ("stop", "kill", "end", "cancel", "rm", "remove", "delete"),
    ("unset", "rm", "remove", "delete", "del"),
    ("new", "create", "add", "generate", "draft"),
    ("pull", "add", "download", "fetch", "get", "import"),
    ("push", "upload"),
    ("send", "copy", "cp", "scp", "upload"),
    ("tag", "alias", "rename", "mv"),
    ("lint", "check"),
    ("diff", "compare"),
)
"""Names of subcommands with one meaning: Argosy's and those of other tools."""

ALONE = {"argosy config": "prints all values", "argosy jobs": "lists your jobs"}
"""Group that lists without a subcommand -> what it does."""


def _same_meaning(name: str, known: Sequence[str]) -> str:
    """Return the subcommand with the meaning of a name that other tools use; empty if there is none."""
    names = (each for group in SAME_MEANING if name in group for each in group)
    return next((each for each in names if each in known), "")


def explain_no_command(name: str, path: str, commands: Iterable[str]) -> UsageError:
    """Return the error for an unknown command, with Argosy's command for it or the most similar one.

    Parameters
    ----------
    path
        The command that was called: ``argosy`` or a group.
    commands
        The commands that exist there.
    """
    known = list(commands)
    answer = COMMAND_HINTS.get(name, "") if path == "argosy" else ""
    what = f"there is no command {name!r}" if path == "argosy" else f"{path} has no command {name!r}"
    if answer:
        return UsageError(what, hint=f"in Argosy: {answer}")
    if path in ALONE and name in {"show", "list", "ls", "info", "status"}:
        return UsageError(what, hint=f"'{path}' alone {ALONE[path]}")
    if path != "argosy" and (near := _same_meaning(name, known)):
        return UsageError(what, hint=f"did you mean '{path} {near}'?")
    if name in app.list_commands(click.Context(app)):
        return UsageError(what, hint=f"did you mean 'argosy {name}'?")
    if near := suggest_word(name, known):
        return UsageError(what, hint=f"did you mean '{path} {near}'?")
    return UsageError(what, evidence=f"known: {', '.join(known)}", hint=f"see '{path} --help'")


def _answer_option(name: str, arguments: Sequence[str]) -> str:
    """Return the hint for an option of another tool; empty if it is unknown.

    Parameters
    ----------
    arguments
        The command line: the hint for ``--gres`` repeats its value.
    """
    if name in {"--gres", "-G"}:
        return _answer_gres(_value(name, arguments))
    return OPTION_HINTS.get(name.replace("_", "-"), "")


def _value(name: str, arguments: Sequence[str]) -> str:
    for at, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == name:
            return value if equals else next(iter(arguments[at + 1 : at + 2]), "")
    return ""


def _answer_gres(value: str) -> str:
    """Return the options that ask for the same as ``gpu:4`` or ``gpu:a100:4``."""
    match = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z]\w*):)?(\d+)", value)
    if match is None:
        return "use --gpus-per-node N, and --gpu-type NAME for a type; anything else: --sbatch-arg=--gres=…"
    kind = f" --gpu-type {match[1]}" if match[1] else ""
    return f"use --gpus-per-node {match[2]}{kind}"
