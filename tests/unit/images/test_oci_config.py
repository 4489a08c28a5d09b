"""An OCI configuration and the scripts made of it, tried with a real shell; the tree they are written to."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import ImageError
from argosy.images.oci import (
    ENV_SCRIPT,
    LAST_SCRIPT,
    RUNSCRIPT,
    OciConfig,
    make_readable,
    parse_config,
    prepare_rootfs,
    refuse_other_layers,
    render_oci_env,
    render_runscript,
)

HOSTILE = "a $HOME `id` \"b\" 'c' \\d\n{e}, ü"
CONFIG = OciConfig("sha256:0", "amd64", variables=(("PATH", "/x"),))
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def sh(text: str, *words: str, env: dict[str, str] | None = None) -> bytes:
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.run([shell, "-euc", text, "sh", *words], env=env or {}, capture_output=True, check=True).stdout


@pytest.mark.parametrize("layers", [[], [{}, {}, {}]])
def test_an_image_without_all_the_layers_of_its_configuration_is_refused(layers: list[object]) -> None:
    text = json.dumps({"architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": ["sha256:1", "sha256:2"]}})
    config = parse_config(text, "it")
    refuse_other_layers(config, json.dumps({"layers": [{}, {}]}), "it")
    refuse_other_layers(CONFIG, json.dumps({"layers": layers}), "of another kind")
    with pytest.raises(ImageError, match="it is incomplete") as error:
        refuse_other_layers(config, json.dumps({"layers": layers}), "it")
    assert error.value.evidence == f"its manifest lists {len(layers)} layers, but its configuration lists 2"


@given(st.lists(values.filter(bool), max_size=3))
def test_every_value_reaches_the_environment_unchanged(texts: list[str]) -> None:
    names = [f"V{number}" for number in range(len(texts))]
    script = render_oci_env(zip(names, texts, strict=True))
    shown = sh(script + "\n" + "\n".join(f"printf '%s\\0' \"${name}\"" for name in names))
    assert shown == b"".join(text.encode() + b"\0" for text in texts)


def test_path_is_always_set_and_other_variables_only_if_unset() -> None:
    script = render_oci_env([("PATH", "/a:/b"), ("X", "image"), ("Y", "image"), ("not-a-name", "z")])
    shown = sh(script + 'echo "$PATH|$X|$Y"', env={"PATH": "/c", "X": "mine", "Y": ""})
    assert shown == b"/a:/b|mine|image\n"
    assert "not-a-name" not in script


def printer(tmp_path: Path) -> str:
    program = tmp_path / "say it"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("entrypoint", "command", "given_words", "expected"),
    [
        ((HOSTILE,), ("b c",), (), f"<{HOSTILE}><b c>"),
        ((HOSTILE,), ("b c",), ("", "d"), f"<{HOSTILE}><><d>"),
        ((), ("x", HOSTILE), (), f"<x><{HOSTILE}>"),
    ],
)
def test_the_runscript_uses_cmd_only_without_arguments(
    tmp_path: Path, entrypoint: tuple[str, ...], command: tuple[str, ...], given_words: tuple[str, ...], expected: str
) -> None:
    program = printer(tmp_path)
    words = (program, *entrypoint) if entrypoint else ()
    default = command if entrypoint else (program, *command)
    config = OciConfig("sha256:0", "amd64", entrypoint=words, command=default)
    assert sh(render_runscript(config), *given_words) == expected.encode()


def test_an_image_without_a_program_starts_a_shell() -> None:
    config = OciConfig("sha256:0", "amd64")
    assert "set -- /bin/sh" in render_runscript(config)
    assert sh(render_runscript(config), "/bin/echo", "a  b") == b"a  b\n"


def test_a_configuration_is_read_with_its_digest_and_time() -> None:
    text = json.dumps(
        {
            "architecture": "arm64",
            "created": "2024-01-02T03:04:05.678901234Z",
            "config": {"Env": ["A=b=c", "EMPTY="], "Cmd": ["x"], "Labels": {"l": "v"}},
        }
    )
    config = parse_config(text, "it")
    assert (config.arch, config.created) == ("arm64", 1704164645)
    assert config.variables == (("A", "b=c"), ("EMPTY", ""))
    assert (config.entrypoint, config.command, config.labels) == ((), ("x",), (("l", "v"),))


@pytest.mark.parametrize("created", ["", "yesterday", "0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z", None, 5])
def test_an_impossible_time_is_zero(created: object) -> None:
    assert parse_config(json.dumps({"architecture": "amd64", "created": created}), "it").created == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"architecture": 5}', '{"architecture":"a","config":{"Env":[1]}}'])
def test_an_invalid_configuration_is_not_an_image(text: str) -> None:
    with pytest.raises(ImageError, match="it is not a container image"):
        parse_config(text, "it")


def test_links_of_the_image_lead_nowhere_outside(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    for folder in (outside / "env", tree):
        folder.mkdir(parents=True)
    (outside / "runscript").write_text("mine")
    (tree / ".singularity.d").symlink_to(outside)
    (tree / "etc").symlink_to(outside)
    (tree / "var").symlink_to(outside)
    prepare_rootfs(tree, CONFIG)
    assert sorted(path.name for path in outside.rglob("*")) == ["env", "runscript"]
    assert (outside / "runscript").read_text() == "mine"
    assert (tree / ENV_SCRIPT).read_text() == "#!/bin/sh\nexport PATH=/x\n"


def test_a_link_in_place_of_a_script_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    script = tmp_path / "tree" / RUNSCRIPT
    script.parent.mkdir(parents=True)
    script.symlink_to(target)
    prepare_rootfs(tmp_path / "tree", CONFIG)
    assert target.read_text() == "mine"
    assert not script.is_symlink()


def test_an_image_of_apptainer_keeps_its_last_script(tmp_path: Path) -> None:
    last = tmp_path / LAST_SCRIPT
    last.parent.mkdir(parents=True)
    last.write_text("own")
    prepare_rootfs(tmp_path, CONFIG)
    assert last.read_text() == "own"


def test_mount_points_are_added_with_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        prepare_rootfs(tmp_path, CONFIG)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("tmp", "var/tmp", "etc", "etc/hosts")}
    assert modes == {"tmp": 0o1777, "var/tmp": 0o1777, "etc": 0o755, "etc/hosts": 0o644}
    assert stat.S_IMODE((tmp_path / RUNSCRIPT).stat().st_mode) == 0o755


def test_files_only_root_can_read_become_readable_for_their_owner(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text("x")
    (tmp_path / "d/f").chmod(0o111)
    (tmp_path / "d").chmod(0)
    (tmp_path / "link").symlink_to("/nowhere")
    make_readable(tmp_path)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d/f").stat().st_mode) == 0o511
