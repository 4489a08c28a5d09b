"""Give a layer the layout that another tool would produce: the prefix, its variables, and labels."""

from __future__ import annotations

import json
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.core.layout import ENV_PREFIX, Activation, PrefixLayout
from argosy.core.records import replace
from argosy.images.oci import LABELS


def apply_layout(
    tree: Path, build_container: BuildContainer, activation: Activation, prefix_layout: PrefixLayout
) -> Activation:
    """Add the link and the labels of a layout to a layer, and return the matching activation."""
    if prefix_layout.labels:
        _add_labels(tree, build_container, prefix_layout.labels)
    if not prefix_layout.prefix:
        return activation
    link = tree / prefix_layout.prefix.lstrip("/")
    if (tree / ENV_PREFIX.lstrip("/")).is_dir() and not link.is_symlink():
        link.parent.mkdir(parents=True)
        link.symlink_to(ENV_PREFIX)
    return rename_prefix(activation, prefix_layout.prefix)


def rename_prefix(activation: Activation, prefix: str) -> Activation:
    """Return an activation whose variables use another path of the same environment.

    Python derives ``sys.prefix`` from the path that it was started from, and does not follow a link in that path.
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
    """Replace the environment's prefix at the start of each path in a colon-separated list."""
    parts = value.split(":")
    matches = [part == ENV_PREFIX or part.startswith(f"{ENV_PREFIX}/") for part in parts]
    return ":".join(
        prefix + part.removeprefix(ENV_PREFIX) if match else part for part, match in zip(parts, matches, strict=True)
    )


def _add_labels(tree: Path, build_container: BuildContainer, labels: tuple[tuple[str, str], ...]) -> None:
    """Write the labels of the base and of the layout; labels of the base that cannot be read are left out."""
    try:
        existing = json.loads(build_container.run("cat", f"/{LABELS}").stdout)
    except ValueError:
        existing = {}
    file = tree / LABELS
    file.parent.mkdir(parents=True, exist_ok=True)
    merged = (existing if isinstance(existing, dict) else {}) | dict(labels)
    file.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
