"""The prose check finds banned phrases where people read them, and reads no code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_prose import CHECKED, EXCEPTIONS, REPO, check, checked_files, main


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "sentence",
    [
        "The reason is said.",
        "A folder of ours is made.",
        "The file is no image.",
        "The image has not a layer.",
        "There are three, and torch is none of them.",
        "Leave it away.",
        "The error names the way out.",
        "A size, as 60G.",
        "The base is made anew.",
        "The tag stands for the image.",
        "Ranks start one after the other.",
        "It is replaced without a word.",
        "What claims more is not read.",
        "Who names an index is followed.",
        "It is a long; very long; sentence.",
    ],
)
def test_a_banned_phrase_is_found(sentence: str, tmp_path: Path) -> None:
    assert check(write(tmp_path, "a.md", sentence + "\n"))
    assert check(write(tmp_path, "a.py", f'"""{sentence}"""\n'))
    assert check(write(tmp_path, "b.py", f"# {sentence}\n"))
    assert check(write(tmp_path, "a.sh", f"true  # {sentence}\n"))
    assert check(
        write(tmp_path, "a.toml", f'why = "{sentence}"\n') if not sentence.startswith("W") else tmp_path / "a.sh"
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no network.",
        "The image has not been built yet.",
        "The image is no longer there.",
        "What does it cost?",
        "Write `is no image`, as the program prints it.",
    ],
)
def test_plain_sentences_pass(sentence: str, tmp_path: Path) -> None:
    assert check(write(tmp_path, "a.md", sentence + "\n")) == []
    assert check(write(tmp_path, "a.py", f'"""{sentence}"""\n')) == []


def test_a_finding_has_the_line_of_the_phrase_and_the_whole_sentence(tmp_path: Path) -> None:
    page = write(tmp_path, "a.md", "# Title\n\n```text\nis no image\n```\n\nFirst. The file\nis no image, ever.\n")
    (found,) = check(page)
    assert (found.line, found.sentence) == (8, "The file is no image, ever.")
    assert str(found).startswith(f"{page}:8: The file")


def test_formatted_strings_and_comments_over_lines_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.py", 'x = 1\nerror = f"{x} is no number"\n# The file\n# is no image.\n')
    assert [found.line for found in check(path)] == [2, 4]


def test_the_exit_code_reports_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path, "a.md", "Plain.\n"))]) == 0
    assert main([str(write(tmp_path, "b.md", "It is no image.\n"))]) == 1
    assert "b.md:1: It is no image." in capsys.readouterr().out


def test_each_checked_pattern_names_a_file_and_each_exception_is_there() -> None:
    assert [pattern for pattern in CHECKED if not any(REPO.glob(pattern))] == []
    assert [name for name in EXCEPTIONS if not (REPO / name).exists()] == []
    assert checked_files()
