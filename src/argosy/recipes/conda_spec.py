"""Parse conda package specifications into a normal form, in which ``numpy 1.26.*`` and ``numpy=1.26`` are equal.

Source: conda's "Package match specifications".
"""

from __future__ import annotations

import re

from argosy.recipes.recipe import CondaSpec, Where, bad_line

KEYS = ("version", "build", "channel", "subdir", "build_number", "md5", "sha256", "url", "fn", "license")

_BRACKETS = re.compile(r"(?P<head>.*?)\[(?P<body>[^\[\]]*)\]\Z")
_PAIR = re.compile(r"""\s*(\w+)\s*=\s*("[^"]*"|'[^']*'|[^,\s'"]+)\s*(?:,|\Z)""")
_PLACED = re.compile(r"(?P<channel>.+)/(?P<subdir>noarch|(?:linux|osx|win|freebsd|emscripten|wasi)-[a-z0-9_]+)\Z")
"""A channel with the folder of one platform, for example in ``conda-forge/linux-64::zlib``."""
_NAME = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.+-]*?)(?P<rest>(?:[\s=<>!~].*)?)\Z")
_BUILD = r"[A-Za-z0-9_.*+^$|()-]+"
_ONE = re.compile(rf"(?P<op>==?)(?P<version>(?:\d+!)?[^=\s,<>!~]*[^=\s,<>!~|])(?:[=\s](?P<build>{_BUILD}))?\Z")
_BUILD_BEGINS = re.compile(r"(?<![<>!~=,|])(?<!^)=(?!=)|\s+")
_TOKEN = re.compile(r"(?P<op>===?|=|[<>!~]=|[<>]|)(?P<number>[0-9A-Za-z_.*+!-]+)\Z")
_SUFFIXES = (".conda", ".tar.bz2")


def parse_conda_spec(text: str, where: Where) -> CondaSpec:
    """Parse a specification."""
    line = text
    text = re.sub(r"\s+#.*\Z" if "/" in text else r"#.*\Z", "", text).strip()  # an address may contain a #
    if named := _parse_file(text, where):
        return named
    extra: dict[str, str] = {}
    if found := _BRACKETS.match(text):
        extra = _parse_brackets(found["body"], where, line)
        text = found["head"].strip()
    channel, _, rest = text.rpartition("::")
    channel = channel.strip()
    if found := _PLACED.match(channel):
        channel, extra["subdir"] = found["channel"], extra.get("subdir", found["subdir"])
    parts = _NAME.match(rest.strip())
    if not parts:
        raise bad_line("invalid conda package", where, line, hint="write channel::name=version=build")
    version, build = _parse_version(parts["rest"].strip(), where, line)
    return CondaSpec(
        name=parts["name"].lower(),
        version=_normal_version(extra.pop("version", version), where, line),
        build=_glob(extra.pop("build", build)),
        channel=extra.pop("channel", channel),
        where=where,
        extra=tuple(sorted(extra.items())),
    )


def _parse_file(text: str, where: Where) -> CondaSpec | None:
    """Parse the address of a package file, whose name contains version and build."""
    address = text.partition("#")[0]
    found = split_package_file(address) if "/" in address else None
    if found is None:
        return None
    name, version, build = found
    return CondaSpec(name, f"=={version}", build, "", where, extra=(("url", text),))


def split_package_file(address: str) -> tuple[str, str, str] | None:
    """Return name, version and build of the package file at an address; None if it is another file."""
    file = address.rpartition("/")[2]
    suffix = next(filter(file.endswith, _SUFFIXES), "")
    parts = file.removesuffix(suffix).rsplit("-", 2)
    if not suffix or len(parts) < 3 or not all(parts):  # noqa: PLR2004 - name, version and build
        return None
    name, version, build = parts
    return name.lower(), version, build


def _parse_brackets(body: str, where: Where, line: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    end = 0
    while end < len(body):
        found = _PAIR.match(body, end)
        if not found or found[1] not in KEYS:
            raise bad_line(f"invalid brackets '[{body}]'", where, line, hint=f"known keys: {', '.join(KEYS)}")
        pairs[found[1]] = found[2].strip("\"'")
        end = found.end()
    return pairs


def _parse_version(text: str, where: Where, line: str) -> tuple[str, str]:
    """Split the text after the name into version and build."""
    text = re.sub(r"\s*([,|])\s*", r"\1", text)
    text = re.sub(r"(?<=[<>=!~])\s+", "", text)
    if not text:
        return "", ""
    if one := _ONE.match(text):
        # With a build string, a single = means exactly: conda reads name=1.26=py311_0 as ==1.26.
        exact = one["build"] and not one["version"].endswith("*") and "|" not in one["version"]
        operator = "==" if exact else one["op"]
        return operator + one["version"], one["build"] or ""
    version, *build = _BUILD_BEGINS.split(text, maxsplit=1)
    if build and not re.fullmatch(_BUILD, build[0]):
        raise bad_line("invalid conda version", where, line, hint="write name=1.26 or name>=1.26,<2")
    return version, "".join(build)


def _normal_version(text: str, where: Where, line: str) -> str:
    text = re.sub(r"\s+", "", text)
    if text in ("", "*", "=*", "==*"):
        return ""
    return "|".join(
        ",".join(_normal_token(token, where, line) for token in both.split(",")) for both in text.split("|")
    )


def _normal_token(token: str, where: Where, line: str) -> str:
    found = _TOKEN.match(token)
    if not found or found["op"] == "===":
        hint = "write name=1.26, name==1.26.4 or name>=1.26,<2"
        raise bad_line(f"invalid conda version '{token}'", where, line, hint=hint)
    operator, number = found["op"], found["number"]
    if number.endswith("*") and number.strip("*."):
        operator = {"": "=", "==": "="}.get(operator, operator)
        # conda reads >=1.8.* as >=1.8. Only != keeps its star: !=1.8.* excludes all of 1.8.
        return operator + (number if operator == "!=" else number.rstrip("*").rstrip("."))
    return (operator or "==") + number


def _glob(build: str) -> str:
    return "" if build == "*" else build


def render_conda_spec(spec: CondaSpec) -> str:
    """Render a specification in conda's short form, with brackets if the short form would have another meaning."""
    extra = dict(spec.extra)
    if url := extra.pop("url", ""):
        return url
    text = f"{spec.channel}::{spec.name}" if spec.channel else spec.name
    if spec.build and re.match(r"=(?!=)", spec.version):
        extra |= {"version": spec.version, "build": spec.build}
    elif spec.build:
        text += f"{spec.version or '=*'}={spec.build}"
    else:
        text += spec.version
    if extra:
        text += "[" + ",".join(f"{key}='{value}'" for key, value in sorted(extra.items())) + "]"
    return text
