"""Compare two locks: packages that came, went or changed, and what else differs; pure."""

from __future__ import annotations

import msgspec

from argosy.recipes.lock import Lock, LockedPackage


class Change(msgspec.Struct, frozen=True):
    """One difference; an empty side was not there.

    Attributes
    ----------
    what
        ``package``, ``variable``, or the lock's own word: ``base``, ``python``, ``content``.
    """

    what: str
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        """Render as one line: ``+`` came, ``-`` went, ``~`` changed."""
        if not self.before:
            return f"+ {self.what} {self.name} {self.after}"
        if not self.after:
            return f"- {self.what} {self.name} {self.before}"
        return f"~ {self.what} {self.name} {self.before} -> {self.after}"


def compare_locks(one: Lock, other: Lock) -> tuple[Change, ...]:
    """Give what differs, packages first, each kind by name."""
    return (
        *_compare("package", _packages(one), _packages(other)),
        *_compare("variable", dict(one.variables), dict(other.variables)),
        *_compare("", _facts(one), _facts(other)),
    )


def _packages(lock: Lock) -> dict[str, str]:
    return {f"{package.name} ({package.kind})": _version(package) for package in lock.packages}


def _version(package: LockedPackage) -> str:
    return " ".join(filter(None, (package.version, package.build)))


def _facts(lock: Lock) -> dict[str, str]:
    return {"base": lock.base.digest, "python": lock.python, "content": lock.content, "name": lock.name}


def _compare(what: str, one: dict[str, str], other: dict[str, str]) -> list[Change]:
    names = sorted(one.keys() | other.keys())
    return [
        Change(what or "image's", name, one.get(name, ""), other.get(name, ""))
        for name in names
        if one.get(name, "") != other.get(name, "")
    ]
