"""Choose and install conda packages with the worker, a separate process that loads rattler."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.core.layout import ENV_PREFIX
from argosy.core.locks import hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.session import Session, Step
from argosy.core.store import make_folder
from argosy.recipes.conda_answer import CondaPackage, packages_of, parse_answer
from argosy.recipes.conda_request import CondaPlan, ExactPackage, Installation, certificates, render_request
from argosy.recipes.condarc import Condarc

CLOBBERS = "__clobbers__"
"""rattler moves a file there that another package has, too. It may leave empty folders of the other package, depending
on which of them it links first."""


class CondaClient(msgspec.Struct, frozen=True):
    """Call the worker for one environment."""

    session: Session
    step: Step
    plan: CondaPlan
    condarc: Condarc
    spare: Path | None = None
    """A further folder of unpacked conda packages, that of a bundle, or None."""

    def choose(self) -> tuple[CondaPackage, ...]:
        """Return the packages of the environment, sorted by name. A plan with exact packages needs no solver.

        Raises
        ------
        ArgosyError
            If there is no solution, or a channel is missing.
        """
        return packages_of(self.plan) if self.plan.pins else self._call(None)

    def install(self, packages: Collection[CondaPackage], prefix: Path) -> None:
        """Install exact packages into a new folder.

        Raises
        ------
        ArgosyError
            If a package is missing or has the wrong digest.
        """
        with translate_os_errors(prefix):
            prefix.parent.mkdir(parents=True, exist_ok=True)
        exact = (ExactPackage(p.name, p.version, p.build, p.login_url, p.sha256, p.md5, p.size) for p in packages)
        self._call(Installation(tuple(exact), prefix, ENV_PREFIX, self.spare))
        _remove_empty_folders(prefix / CLOBBERS)

    def _call(self, installation: Installation | None) -> tuple[CondaPackage, ...]:
        cache = self.session.paths.cache / "conda"
        with translate_os_errors(cache):
            make_folder(cache)
        request = render_request(self.plan, cache=cache, installation=installation)
        argv = (sys.executable, "-m", "argosy.recipes.conda_worker")
        command = Command(argv, env=self._environment(), stdin=request)
        # One process at a time fills the cache: rattler's own locks do not work on every network file system.
        with hold_lock(cache / "lease", what="installing conda packages", waiting=self.session.waiting):
            reply = self.session.runner.run(command, lambda line: self.step.say(line.strip()))
        return parse_answer(reply, self.plan)

    def _environment(self) -> dict[str, str]:
        """Return the caller's environment without variables of another Python or conda.

        The worker finds its packages where this process found them, for example below ``~/.local``.
        """
        host = self.session.host.environment
        kept = {name: value for name, value in host.items() if not name.startswith(("PYTHON", "CONDA", "MAMBA"))}
        packages = os.pathsep.join(path for path in sys.path if Path(path).is_absolute())
        kept |= {"PYTHONPATH": packages, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
        if roots := certificates(self.condarc, host):
            kept["SSL_CERT_FILE"] = roots
        return kept


def _remove_empty_folders(folder: Path) -> None:
    """Remove the empty folders in a folder, and it if it becomes empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty
            os.rmdir(path)  # noqa: PTH106 - os.walk gives strings
