"""Make a layer look as another tool would have made it: its environment's folder, its variables, its labels."""

from __future__ import annotations

import json
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.builder.build_plan import BuildPlan
from argosy.builder.report import BuildRequest
from argosy.core.layout import ENV_PREFIX, Activation, PrefixLayout
from argosy.core.records import replace
from argosy.images.oci import LABELS


def prefix_layout_of(request: BuildRequest, build_plan: BuildPlan) -> PrefixLayout:
    """Give the guise of what is built: a lock's own, else what is asked for."""
    return PrefixLayout(build_plan.lock.known_as, build_plan.lock.labels) if build_plan.lock else request.prefix_layout


def apply_layout(
    tree: Path, build_container: BuildContainer, activation: Activation, prefix_layout: PrefixLayout
) -> Activation:
    """Put into a layer what its guise needs, and give the environment that goes with it."""
    if prefix_layout.labels:
        _add_labels(tree, build_container, prefix_layout.labels)
    if not prefix_layout.prefix:
        return activation
    link = tree / prefix_layout.prefix.lstrip("/")
    if (tree / ENV_PREFIX.lstrip("/")).is_dir() and not link.is_symlink():
        link.parent.mkdir(parents=True)
        link.symlink_to(ENV_PREFIX)
    return plan_names(activation, prefix_layout.prefix)


def plan_names(activation: Activation, prefix: str) -> Activation:
    """Let an environment's variables name it by another folder, under which it is found, too.

    Python takes the folder it was started from for ``sys.prefix``, and follows no link of that folder.
    """
    return replace(
        activation,
        prepend=tuple((name, _renamed(value, prefix)) for name, value in activation.prepend),
        identity=tuple(
            (name, Path(prefix).name if name == "CONDA_DEFAULT_ENV" else _renamed(value, prefix))
            for name, value in activation.identity
        ),
        default=tuple((name, _renamed(value, prefix)) for name, value in activation.default),
    )


def _renamed(value: str, prefix: str) -> str:
    """Replace the environment's folder at the head of each part of a list of paths."""
    parts = value.split(":")
    ours = [part == ENV_PREFIX or part.startswith(f"{ENV_PREFIX}/") for part in parts]
    return ":".join(
        prefix + part.removeprefix(ENV_PREFIX) if own else part for part, own in zip(parts, ours, strict=True)
    )


def _add_labels(tree: Path, build_container: BuildContainer, labels: tuple[tuple[str, str], ...]) -> None:
    """Write the base's labels and ours; those of a base that cannot be read are left out."""
    try:
        there = json.loads(build_container.run("cat", f"/{LABELS}").stdout)
    except ValueError:
        there = {}
    file = tree / LABELS
    file.parent.mkdir(parents=True, exist_ok=True)
    merged = (there if isinstance(there, dict) else {}) | dict(labels)
    file.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
