"""Words of shell text: what is quoted reaches a program unchanged, in every POSIX shell that this machine has."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.layout import ENV_SCRIPT, render_enter
from argosy.core.shell import (
    ShellExpr,
    ShellFunction,
    escape_colons,
    extract_functions,
    format_command,
    join,
    literal_argv,
    quote,
    render_assignment,
    render_command,
    render_functions,
)

SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]
# A NUL cannot stand in an argument; a lone surrogate is no text.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NASTY = (
    "",
    " ",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "*",
    "~",
    "\n",
    "a\nb\n",
    "-n",
    "--",
    "\\",
    "é 🚢",
    "!x",
    "#",
)


def shell(name: str, script: str) -> str:
    words = ("busybox", "sh") if name == "busybox" else (name,)
    return subprocess.run((*words, "-c", script), capture_output=True, check=True).stdout.decode()


@pytest.mark.parametrize("name", SHELLS)
@given(words=st.lists(st.one_of(st.sampled_from([":", "::", "a:", "", "-"]), texts), max_size=8))
def test_arguments_for_srun_have_no_lone_colon_and_arrive_unchanged(name: str, words: list[str]) -> None:
    carried = escape_colons(("printf", "%s\\0", *words))
    assert ":" not in carried
    printed = shell(name, join(carried)).split("\0")[:-1]
    assert printed == (words or [""])


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("word", ["a\r\nb", "\r\n", "a\r\n\r\n", "\r\r\n'", "x\r"])
def test_an_argument_with_dos_line_ends_arrives_and_leaves_none_in_the_script(name: str, word: str) -> None:
    script = join(["printf", "%s", word])
    assert "\r\n" not in script
    assert shell(name, f"{script}; printf end") == f"{word}end"


@pytest.mark.parametrize("name", SHELLS)
@given(words=st.lists(texts, max_size=8))
def test_quoted_arguments_reach_a_program_unchanged(name: str, words: list[str]) -> None:
    printed = shell(name, join(["printf", "%s\\0", *words]) if words else "true")
    assert printed.split("\0")[:-1] == words


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("width", [1, 40, 100])
def test_a_command_broken_over_lines_is_the_same_command(name: str, width: int) -> None:
    printed = shell(name, render_command(("printf", "%s\\0", *NASTY), indent="    ", width=width))
    assert tuple(printed.split("\0")[:-1]) == NASTY


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("value", NASTY)
def test_an_assignment_gives_its_value(name: str, value: str) -> None:
    assert shell(name, f'{render_assignment("X", value)}\nprintf "%s." "$X"') == f"{value}."


@pytest.mark.parametrize("name", SHELLS)
def test_late_expressions_are_expanded_once_and_never_split(name: str) -> None:
    script = f"X='a  *  $HOME'; {join(['printf', '%s.', ShellExpr('$X'), ShellExpr('${X}:1'), '$X'])}"
    assert shell(name, script) == "a  *  $HOME.a  *  $HOME:1.$X."


@pytest.mark.parametrize("name", ["", "1x", "a-b", "a b", "a\n", "é", "a=b"])
def test_an_invalid_name_of_a_shell_variable_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a variable name"):
        render_assignment(name, "x")


def test_an_expression_for_the_shell_is_not_a_literal_argument() -> None:
    assert literal_argv(("a", "b")) == ("a", "b")
    with pytest.raises(ValueError, match="only a shell can expand"):
        literal_argv(("a", ShellExpr("$X")))


@pytest.mark.parametrize("name", SHELLS)
def test_shell_functions_are_written_once_and_run_as_if_inlined(name: str) -> None:
    inner = ShellFunction("inner", 'printf "%s." "$@"\n')
    outer = ShellFunction("outer", '# A comment; $HOME\nexec "$@"\n')
    words = ("sh", "-c", outer, "x", "sh", "-c", inner, "y", "a b", "$HOME")
    programs, named = extract_functions((*words, "sh", inner))
    assert [program.name for program in programs] == ["outer", "inner"]
    script = "\n".join([*render_functions(programs), join(named[:-2])])
    assert script.count('printf "%s." "$@"') == 1
    assert shell(name, script) == "a b.$HOME."


@given(word=texts)
def test_a_program_is_the_text_that_it_is_made_of(word: str) -> None:
    assert ShellFunction("p", word) == word
    assert quote(ShellFunction("p", word)) == quote(word)


def test_a_script_among_the_arguments_is_shown_once() -> None:
    join, ask = "# Joins.\nexec bwrap", "import sys\nprint(1)"
    told = set[str]()
    first = ("unshare", "--", "sh", "-c", join, "a", "--dev", "--", "python", "-c", ask)
    assert format_command(first, told) == shlex.join(first)
    assert format_command(first, told) == "… -- python -c 'import sys …'"
    assert format_command(("unshare", "sh", "-c", join, "b", "--", "uv", "--", "x"), told) == "… -- uv -- x"
    assert format_command(("sh", "-c", join, "a b"), told) == "sh -c '# Joins. …' 'a b'"
    assert format_command(("ls", "--", "a b"), told) == "ls -- 'a b'"


def test_the_path_is_shown_if_an_image_has_no_program() -> None:
    script = render_enter().replace(ENV_SCRIPT, "/dev/null")
    done = subprocess.run(
        ("/bin/sh", "-c", script, "enter", "sh"), env={"PATH": "/x"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (127, "argosy: the image has no program sh (PATH=/x)\n")
