"""Find what a script does not do at the same time: the order of its programs, which become separate jobs; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from argosy.launch.import_script.model import Fate, ImportedJob, Note
from argosy.slurm.script_words import Word, source_text

JOB_NUMBER = re.compile(r"[^\s=:;,]*\$\{?SLURM_(ARRAY_)?JOB_?ID\b(:-[^}]*)?\}?")
"""The beginning of a name with the number of the job."""


class Order(msgspec.Struct):
    """The programs that ended before the current line, as the script waits for them.

    Attributes
    ----------
    ended
        Jobs after which the next program starts; those that start before one of them are left out.
    running
        Jobs that the script started with ``&``, with the jobs after which each started.
    numbers
        Variables with the process number of a program (``PID=$!``).
    """

    ended: list[ImportedJob] = []
    running: list[tuple[ImportedJob, list[ImportedJob]]] = []
    numbers: dict[str, ImportedJob] = {}

    def start(self, job: ImportedJob, *, background: bool) -> list[ImportedJob]:
        """Note the start of a program, and return the jobs after which it starts."""
        before = self.ended
        if background:
            self.running.append((job, before))
        else:
            self.ended = [job]
        return before

    def wait(self, arguments: Sequence[str] = ()) -> None:
        """Note ``wait``; it waits for all programs if an argument is not known."""
        if "-n" in arguments:
            return
        named = [self._find(each) for each in arguments]
        awaited = [each for each in self.running if not named or None in named or each[0] in named]
        self.running = [each for each in self.running if each not in awaited]
        earlier = [job for _, before in awaited for job in before]
        self.ended = [*(job for job, _ in awaited), *(job for job in self.ended if job not in earlier)]

    def note_assignment(self, name: str, words: Sequence[Word]) -> None:
        """Note ``NAME=$!``, the number of the last program that started with ``&``."""
        if self.running and [source_text(word) for word in words] == ["$!"]:
            self.numbers[name] = self.running[-1][0]

    def _find(self, argument: str) -> ImportedJob | None:
        if argument == "$!":
            return self.running[-1][0] if self.running else None
        return self.numbers.get(re.sub("[${}]", "", argument))


def order_note(job: ImportedJob, before: Sequence[ImportedJob]) -> Note:
    """Report the jobs after which a job must start."""
    lines = sorted({each.line for each in before})
    place = f"line{'s' if len(lines) > 1 else ''} {' and '.join(map(str, lines))}"
    numbers = "the numbers of those jobs" if len(before) > 1 else "the number of that job"
    note = f"it runs after {place}: launch {job.name} with --after and {numbers}"
    return f"[job.{job.name}]", Fate.UNTRANSLATED, note


def shared_names(job: ImportedJob, others: Sequence[ImportedJob]) -> Iterator[Note]:
    """Report names with the number of the job that another job has, too: each job of Slurm has its own number."""
    for name in dict.fromkeys(_numbered(job)):
        other = next((each for each in others if name in _numbered(each)), None)
        if other:
            note = f"[job.{other.name}] has another job number: write the same name into both tables"
            yield name, Fate.UNTRANSLATED, note


def _numbered(job: ImportedJob) -> list[str]:
    """Return the beginnings of names that contain the number of the job."""
    texts = (*job.keys["command"], *job.keys.get("before", ()))
    return [found[0] for text in texts for found in JOB_NUMBER.finditer(re.sub("[\"']", "", text))]
