"""Explain mistakes on the command line, and answer commands and options of other tools; loaded only after an error."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import click

from argosy.cli.app import RUNS_A_PROGRAM, app
from argosy.cli.hints import (
    ALONE,
    CHOICE_HINTS,
    COMMAND_HINTS,
    COMMAND_OPTION_HINTS,
    MISSING_HINTS,
    OPTION_HINTS,
    SAME_MEANING,
)
from argosy.core.errors import ArgosyError, DiskFull, UsageError
from argosy.core.os_errors import ELSEWHERE, is_on_same_disk
from argosy.core.suggest import suggest_word
from argosy.recipes.launch_options import LAUNCH
from argosy.recipes.option_row import PROJECT_FILE, option_names
from argosy.recipes.user_config import KEYS
from argosy.sites.read import site_names
from argosy.slurm.sbatch import DASHES, NATIVE_OPTIONS, SBATCH_FLAGS

DASHED = re.compile(rf"([-{DASHES}]+)([\w-]*(?:=.*)?)", re.DOTALL)
"""An option, or ``--``, that begins with such a dash."""

FOR_A_COMMAND = "for a command: argosy run IMAGE -- COMMAND"
"""Hint for argosy shell, which takes no command."""


def refuse_typographic_dashes(arguments: Sequence[str]) -> None:
    """Refuse options that begin with a dash of a web page.

    Raises
    ------
    UsageError
        Names the first such option.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for argument in filter(_is_typographic, arguments[:end]):
        raise UsageError(f"{argument!r} begins with a typographic dash", hint=f"write {_with_plain_dash(argument)}")


def typographic_dash_note(arguments: Sequence[str]) -> str:
    """Return a note about the first such argument of the user's program; empty if it has none."""
    start = arguments.index("--") if "--" in arguments else len(arguments)
    found = next(filter(_is_typographic, arguments[start:]), "")
    return f"{found!r} begins with a typographic dash; your program gets it unchanged" if found else ""


def _is_typographic(argument: str) -> bool:
    match = DASHED.fullmatch(argument)
    return match is not None and not match[1].isascii()


def _with_plain_dash(argument: str) -> str:
    """Return an option with ASCII dashes: text editors replace ``--`` with a long dash."""
    name = argument.lstrip(f"-{DASHES}")
    is_short = len(name.partition("=")[0]) == 1 and len(argument) == len(name) + 1
    return f"-{name}" if is_short else f"--{name}"


def with_own_options(hint: str, arguments: Sequence[str]) -> str:
    """Return a hint that names only those options for another folder that the command has.

    Parameters
    ----------
    arguments
        The whole command line.
    """
    options = {name for each in _find_context(arguments).command.params for name in each.opts}
    if "--error" in options:
        options.discard("--output")  # a launch writes Slurm's output there
    names = [name for name in re.split(", | or ", ELSEWHERE) if name in options or not name.startswith("-")]
    *first, last = names
    return hint.replace(ELSEWHERE, f"{', '.join(first)} or {last}" if first else last)


def advise_on_cache(error: DiskFull) -> str:
    """Return what to append to the hint of a full disk if the cache is on it; else an empty text."""
    from argosy.cli.common import open_session

    with suppress(ArgosyError, OSError):
        cache = open_session(quiet=True).paths.cache
        if is_on_same_disk(cache, Path(error.folder)):
            return f"; argosy cache gc removes unused files of the cache {cache}, which is on this disk"
    return ""


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
            return _explain_no_value(error, context)
        case click.BadParameter():
            name = _parameter_name(error.param) or str(error.param_hint or "value")
            what = f"invalid {name}: {_explain_range(_sentence(error.message))}"
            return UsageError(what, hint=_hint_for_value(error, name) or see)
    extra = re.match(r"Got unexpected extra arguments? \((.*?)\)", error.format_message(), re.DOTALL)
    what = f"unexpected argument {extra[1]!r}" if extra else _sentence(error.format_message())
    if extra and path == "argosy shell":
        see = FOR_A_COMMAND
    elif extra and any(each.name == "site" for each in context.command.params) and extra[1].strip("'") in site_names():
        see = f"for a site: {path} --site {extra[1]}"
    return UsageError(f"{path}: {what}", hint=see)


def _explain_no_value(error: click.BadOptionUsage, context: click.Context) -> UsageError:
    """Explain an option without its value, or a flag with one."""
    path, name = context.command_path, error.option_name
    if "does not take a value" in error.message:
        return UsageError(f"{path}: {name} takes no value", hint=f"write only {name}")
    return UsageError(f"{path}: {name} needs a value", hint=f"{_show_value(error, context)}see '{path} --help'")


def _hint_for_value(error: click.BadParameter, name: str) -> str:
    """Return a hint for a value that an option does not accept; empty if there is none."""
    if name in {"--gpus", "--gpus-per-node"} and error.message.startswith("0 "):
        return "use --gpu none for a job without GPUs"
    value = match[1] if (match := re.match(r"'(.*?)'", error.message)) else ""
    if value.startswith("=") and isinstance(error.param, click.Option):
        return f"write {error.param.opts[0]} {value[1:]}"
    if value == "--":
        return f"the value of {name} is missing"
    if name == "--gpu" and value.isdecimal():
        return f"for a number of GPUs: --gpus {value}, or --gpus-per-node {value}"
    if name == "--nodes" and (nodes := re.fullmatch(r"(\d+)[-:](\d+)", value)):
        return f"for a range of nodes: --elastic {nodes[1]}:{nodes[2]}"
    near = _nearest_choice(error)
    return f"did you mean {near}?" if near else ""


def _nearest_choice(error: click.BadParameter) -> str:
    """Return the choice that the user probably meant; empty if the parameter has no choices or none is similar."""
    choices = _choices_of(error.param)
    match = re.match(r"'(.*)' is not one of", error.message)
    given = match[1] if match else ""
    known = CHOICE_HINTS.get(given, "")
    return known if known in choices else suggest_word(given, map(str, choices))


def _choices_of(parameter: click.Parameter | None) -> Sequence[str]:
    return parameter.type.choices if parameter and isinstance(parameter.type, click.Choice) else ()


def _find_context(arguments: Sequence[str]) -> click.Context:
    """Return the context of the command of a line, for an error for which click has none."""
    context = click.Context(app, info_name="argosy")
    for name in arguments[1:]:
        command = context.command
        if not isinstance(command, click.Group):
            break
        names = [each for each in (name, getattr(command, "usual_command", "")) if each]
        known = next((each for each in names if command.get_command(context, each)), "")
        found = command.get_command(context, known) if known else None
        if found is None:
            break
        context = click.Context(found, context, info_name=known)
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
    hint = _known_answer(name, path, arguments) or _similar_option(error, path, arguments) or f"see '{path} --help'"
    return UsageError(f"{path} has no option {name}", hint=hint)


def _known_answer(name: str, path: str, arguments: Sequence[str]) -> str:
    """Return the hint for an option of another tool or command; empty if it is unknown."""
    if path == "argosy config set" and name[2:].replace("-", "_") in KEYS:
        return f"write: {path} {name[2:].replace('-', '_')} VALUE"
    if name in {"--gres", "-G"}:
        return _answer_gres(_value_of(name, arguments))
    answer = COMMAND_OPTION_HINTS.get(path, {}).get(name) or OPTION_HINTS.get(name.replace("_", "-"), "")
    if not answer and path in {"argosy run", "argosy shell"} and name in option_names(LAUNCH):
        return f"argosy launch has this option: argosy launch IMAGE {name} … -- COMMAND"
    return answer


def _similar_option(error: click.NoSuchOption, path: str, arguments: Sequence[str]) -> str:
    """Return the hint for an option of sbatch, a misspelt one or one of the user's program; empty for others."""
    name = error.option_name
    options = [each for each in error.ctx.command.params if isinstance(each, click.Option)] if error.ctx else []
    by_name = {text: each for each in options for text in each.opts if text.startswith("--")}
    plain = name.lstrip("-")
    if "--sbatch-arg" in by_name and plain in NATIVE_OPTIONS:
        return f"pass it to Slurm: --sbatch-arg={name}{'' if plain in SBATCH_FLAGS else '=VALUE'}"
    # Without the dashes, which would make every pair of short names similar: --epochs and --qos.
    word = suggest_word(plain, [text.removeprefix("--") for text in by_name])
    near = f"--{word}" if word else ""
    if near and error.ctx:
        return (
            f"did you mean {near}? For example: {_example(error.ctx, by_name[near], near, _value_of(name, arguments))}"
        )
    if path == "argosy shell":
        return FOR_A_COMMAND
    if path.rsplit(maxsplit=1)[-1] in RUNS_A_PROGRAM and "--" not in arguments:
        return f"write -- before the command: {path} IMAGE -- python train.py"
    return ""


def _value_of(name: str, arguments: Sequence[str]) -> str:
    """Return the text after an option, which is its value unless it is a flag; empty if there is none."""
    following = (after for before, after in pairwise(arguments) if before == name)
    joined = (argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}="))
    return next(joined, "") or next(following, "")


def _example(context: click.Context, option: click.Option | None, name: str, value: str = "") -> str:
    """Return a command line, for example ``argosy launch IMAGE --nodes N -- COMMAND``.

    It shows the option of this name if there is one, with its value as typed if that is one of its choices.
    """
    chosen = value if value in _choices_of(option) else ""
    arguments = [each for each in context.command.params if isinstance(each, click.Argument)]
    names = [_parameter_name(each) for each in arguments if each.required and each.name != "command"]
    value = "" if option is None or option.is_flag else f" {chosen or option.metavar or name.strip('-').upper()}"
    own_program = (name, chosen) == ("--enter", "run")
    command = ["-- COMMAND"] if any(each.name == "command" for each in arguments) and not own_program else []
    return " ".join([context.command_path, *names, *([name + value] if option else []), *command])


def _explain_missing(error: click.MissingParameter, context: click.Context) -> UsageError:
    path = context.command_path
    if path == "argosy shell":
        return UsageError(f"{path}: the image is missing", hint="write: argosy shell IMAGE")
    if path == "argosy run":
        hint = (
            "write: argosy run IMAGE -- python train.py; for a shell: argosy shell IMAGE; "
            "for the image's own program: argosy run --enter run IMAGE"
        )
        named = "command" if context.params.get("image") else "image or the command"
        return UsageError(f"{path}: the {named} is missing", hint=hint)
    name = _parameter_name(error.param) or "an argument"
    key, equals, value = str(context.params.get("key") or "").partition("=")
    if path == "argosy config set" and equals:
        return UsageError(f"{path}: key and value are two arguments", hint=f"write: {path} {key} {value or 'VALUE'}")
    choices = _choices_of(error.param)
    evidence = f"choose one of: {', '.join(map(str, choices))}" if choices else ""
    usage = _example(context, error.param if isinstance(error.param, click.Option) else None, name)
    if path == "argosy launch" and (jobs := _project_jobs()):
        evidence, usage = f"jobs of {PROJECT_FILE}: {', '.join(jobs)}", f"{path} {jobs[0]}; or {usage}"
    example = MISSING_HINTS.get(f"{path} {name}", f"write: {usage}; see '{path} --help'")
    return UsageError(f"{path}: {name} is missing", evidence=evidence, hint=example)


def _project_jobs() -> tuple[str, ...]:
    """Return the names of the jobs in the project file of this folder; none if it is missing or invalid."""
    from argosy.recipes.project_file import find_project

    with suppress(UsageError):
        project = find_project(Path.cwd())
        return tuple(project.table.job) if project else ()
    return ()


def same_meaning(name: str, known: Collection[str]) -> str:
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
    what = f"there is no command {name!r}" if path == "argosy" else f"{path} has no command {name!r}"
    hint = _hint_for_command(name, path, known)
    evidence = "" if hint else f"known: {', '.join(known)}"
    return UsageError(what, evidence=evidence, hint=hint or f"see '{path} --help'")


def _hint_for_command(name: str, path: str, known: Sequence[str]) -> str:
    """Return the hint for an unknown command; empty if there is none."""
    if path == "argosy" and name in COMMAND_HINTS:
        return f"in Argosy: {COMMAND_HINTS[name]}"
    if path == "argosy config" and name in KEYS:
        return f"write: argosy config set {name} VALUE"
    if path in ALONE and name in {"show", "list", "ls", "info", "status"}:
        return f"'{path}' alone {ALONE[path]}"
    if path != "argosy" and (same := same_meaning(name, known)):
        return f"did you mean '{path} {same}'?"
    if name in app.list_commands(click.Context(app)):
        return f"did you mean 'argosy {name}'?"
    near = suggest_word(name, known)
    return f"did you mean '{path} {near}'?" if near else ""


def _answer_gres(value: str) -> str:
    """Return the options that ask for the same as ``gpu:4`` or ``gpu:a100:4``."""
    match = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z]\w*):)?(\d+)", value)
    if match is None:
        return "use --gpus-per-node N, and --gpu-type NAME for a type; anything else: --sbatch-arg=--gres=…"
    kind = f" --gpu-type {match[1]}" if match[1] else ""
    return f"use --gpus-per-node {match[2]}{kind}"
