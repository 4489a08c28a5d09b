"""Parse Container Device Interface (CDI) specifications: the files and variables that a device needs in a container.

Format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md (0.3 to 1.0).
`nvidia-ctk cdi generate` writes such a file to /etc/cdi or /var/run/cdi.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import Bind, Devices, Variable
from argosy.core.parse import load_yaml, parse_json
from argosy.core.shell import NAME

ALL = "all"
"""Name of the device that combines all devices of a vendor."""

NOTHING: Mapping[str, object] = {}


class CdiSpec(msgspec.Struct, frozen=True):
    """A CDI specification file."""

    path: str
    kind: str
    """``vendor/class``, for example ``nvidia.com/gpu``."""
    common: Devices
    """Requirements of all devices."""
    devices: Mapping[str, Devices] = msgspec.field(default_factory=dict)
    """Additional requirements of each device, by name."""


def parse_cdi(text: str, path: str) -> CdiSpec:
    """Parse a specification in JSON or YAML.

    Raises
    ------
    CheckFailed
        If the file is not a valid specification.
    """
    try:
        data = parse_json(text) if path.endswith(".json") else load_yaml(text, path)
    except (ValueError, UsageError) as error:
        evidence = error.evidence if isinstance(error, UsageError) else str(error)
        raise CheckFailed(f"{path} is not a valid CDI specification", evidence=evidence, hint=_HINT) from None
    root = _Field(path, "", data)
    devices = {
        device.get("name").text(): _parse_edits(device.get("containerEdits")) for device in root.get("devices").items()
    }
    return CdiSpec(path, root.get("kind").text(), _parse_edits(root.get("containerEdits")), devices)


def choose_devices(spec: CdiSpec) -> Devices:
    """Return the requirements of the device ``all``, or of all devices together."""
    chosen = [spec.devices[ALL]] if ALL in spec.devices else list(spec.devices.values())
    return join_devices([spec.common, *chosen])


def join_devices(parts: list[Devices]) -> Devices:
    """Merge several records without duplicates; the first mount of a target and value of a variable wins."""
    binds = {bind.target: bind for part in reversed(parts) for bind in reversed(part.binds)}
    variables = {variable.name: variable for part in reversed(parts) for variable in reversed(part.variables)}
    return Devices(
        nodes=_once(node for part in parts for node in part.nodes),
        binds=tuple(reversed(binds.values())),
        variables=tuple(reversed(variables.values())),
        links=tuple(dict.fromkeys(link for part in parts for link in part.links)),
        library_folders=_once(folder for part in parts for folder in part.library_folders),
    )


_HINT = "generate it again, for NVIDIA with: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


class _Field(msgspec.Struct, frozen=True):
    """A value with its position in the file, for error messages."""

    path: str
    place: str
    value: object

    def wrong(self, expected: str) -> CheckFailed:
        return CheckFailed(
            f"{self.path} is not a valid CDI specification",
            evidence=f"{self.place or 'the file'}: expected {expected}, found {_shown(self.value)}",
            hint=_HINT,
        )

    def get(self, key: str) -> _Field:
        if not isinstance(self.value, dict):
            raise self.wrong("a table")
        return _Field(self.path, f"{self.place}.{key}".lstrip("."), self.value.get(key))

    def items(self) -> Iterator[_Field]:
        if not isinstance(self.value, list | None):
            raise self.wrong("a list")
        for number, value in enumerate(self.value or ()):
            yield _Field(self.path, f"{self.place}[{number}]", value)

    def text(self) -> str:
        # nvidia-ctk names devices 0, 1, …, which YAML reads as numbers if they are not quoted.
        if isinstance(self.value, bool) or not isinstance(self.value, str | int) or self.value == "":
            raise self.wrong("a string")
        return str(self.value)

    def absolute(self) -> str:
        text = self.text()
        if not text.startswith("/") or "\0" in text:
            raise self.wrong("an absolute path")
        return text


def _parse_edits(edits: _Field) -> Devices:
    if edits.value is None:
        return Devices()
    words = [word for hook in edits.get("hooks").items() for word in _hook_words(hook)]
    return Devices(
        nodes=tuple(_parse_node(node) for node in edits.get("deviceNodes").items()),
        binds=tuple(_parse_mount(mount) for mount in edits.get("mounts").items()),
        variables=tuple(_parse_variable(variable) for variable in edits.get("env").items()),
        links=tuple(_parse_link(text) for option, text in words if option == "--link"),
        library_folders=_once(text.absolute() for option, text in words if option == "--folder"),
    )


def _parse_node(node: _Field) -> str:
    path = node.get("path").absolute()
    elsewhere = node.get("hostPath")
    if elsewhere.value not in {None, "", path}:
        raise elsewhere.wrong("the same path as in the container")
    return path


def _parse_mount(mount: _Field) -> Bind:
    options = [option.text() for option in mount.get("options").items()]
    return Bind(mount.get("hostPath").absolute(), mount.get("containerPath").absolute(), read_only="ro" in options)


def _parse_variable(variable: _Field) -> Variable:
    name, given, value = variable.text().partition("=")
    if not given or not NAME.match(name):
        raise variable.wrong("NAME=VALUE")
    return Variable(name, value)


def _parse_link(link: _Field) -> tuple[str, str]:
    target, given, name = link.text().partition("::")
    if not given or not target or not name.startswith("/"):
        raise link.wrong("TARGET::LINK")
    return target, name


def _hook_words(hook: _Field) -> Iterator[tuple[str, _Field]]:
    """Yield the options of a hook that concern files: ``--folder X``, ``--folder=X``, ``--link T::L``.

    The hooks are not executed: they would change the image's root file system and need NVIDIA's program.
    """
    words = list(hook.get("args").items())
    for number, word in enumerate(words):
        option, given, text = word.text().partition("=")
        if option not in {"--folder", "--link"}:
            continue
        if given:
            yield option, _Field(word.path, word.place, text)
        elif number + 1 < len(words):
            yield option, words[number + 1]


def _once(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _shown(value: object) -> str:
    names: Mapping[type, Callable[[object], str]] = {dict: lambda _: "a table", list: lambda _: "a list"}
    return "nothing" if value is None else names.get(type(value), repr)(value)
