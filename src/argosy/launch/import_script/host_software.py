"""Decide what becomes of modules, environments and paths of the host in a job; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from argosy.core.model import BARE_PREFIX
from argosy.launch.import_script.model import Fate, Outcome
from argosy.sites.profile import Site

RUNTIME_MODULES = frozenset({"apptainer", "singularity", "singularityce", "singularity-ce"})
BIND_MODULE = re.compile(r"(?:lumi-aif-)?singularity-\w[\w-]*")
"""Modules of LUMI that only set SINGULARITY_BIND, for example singularity-userfilesystems."""

PRINTING = frozenset({"list", "avail", "av", "spider", "show", "display", "whatis", "help", "keyword", "key"})
"""Commands of ``module`` that only print."""


def only_prints(command: Sequence[str]) -> bool:
    """Return whether a command of ``module`` or ``ml`` only prints, for example ``module -t list``."""
    name, *arguments = command
    words = [each for each in arguments if not each.startswith("-")]
    return words[0] in PRINTING if words else name in {"module", "ml"}


def fate_of_modules(names: frozenset[str], site: Site, *, bare: bool) -> Outcome:
    """Return what becomes of ``module load NAMES``; a `bare` job has no container."""
    if bare:
        return Fate.UNTRANSLATED, "no container: load it in your shell, the job inherits it"
    plain = {name.partition("/")[0] for name in names}
    loaded = {name.partition("/")[0] for name in site.modules.load}
    if plain & RUNTIME_MODULES and not plain & loaded:
        return Fate.UNTRANSLATED, "the profile does not load it: add it to load in [modules] of the profile"
    if plain and plain <= loaded:
        return Fate.REPLACED, f"the profile of {site.name} loads it"
    if plain and site.binds and all(map(BIND_MODULE.fullmatch, plain)):
        return Fate.REPLACED, f"the profile of {site.name} mounts the folders of the host that jobs need"
    return Fate.LEFT_OUT, "the image has the software"


def fate_of_activation(environment: str, prefix: str, *, bare: bool) -> Outcome:
    """Return what becomes of a command that activates an environment; `prefix` is that of the jobs."""
    if not environment:
        return Fate.LEFT_OUT, "it prepares the shell of the script"
    if not bare:
        return Fate.UNTRANSLATED, f"the image must contain the packages of {environment}"
    if environment == prefix:
        return Fate.KEPT, f'image = "{BARE_PREFIX}{environment}"'
    return Fate.UNTRANSLATED, "no container: activate it in your shell, the job inherits it"


def fate_of_host_path(images: Collection[str], guess: str) -> Outcome:
    """Return what becomes of PATH and the like; `guess` is the folder that PATH names first, if it becomes an image."""
    if guess and f"{BARE_PREFIX}{guess}" in images:
        return Fate.KEPT, f'image = "{BARE_PREFIX}{guess}": if it has no bin/python, choose another environment'
    if any(image.startswith(BARE_PREFIX) for image in images):
        return Fate.KEPT, "the shell of each rank sets it"
    return Fate.LEFT_OUT, "the image has its own paths"
