"""pip's configuration in uv's words: by value, by property, and once with the real uv."""

from __future__ import annotations

import contextlib
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import ArgosyError, UsageError
from argosy.core.process import Command, RealRunner, Reply
from argosy.core.redact import split_login
from argosy.recipes.pip_settings import PipConfig, PipSetting, read_pip_config
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import PYPI, PipOption, Recipe, Where
from argosy.recipes.uv_options import UvSettings, plan_uv_settings, render_requirements

WORDS = st.from_regex(r"[a-z0-9,+]{1,6}", fullmatch=True)
LOGINS = st.sampled_from(["", "token@", "me:planted@"])
URLS = st.builds("https://{}{}.example.org/{}".format, LOGINS, st.from_regex(r"[a-z]{1,5}", fullmatch=True), WORDS)
FRAGMENTS = (
    "[global]",
    "[install]",
    "timeout",
    "retries",
    "find-links",
    "pre",
    "cert",
    "=",
    "x",
    "1",
    "\n",
    ":",
    "%",
    "\x00",
)
FOLDERS = st.builds("/srv/{}".format, WORDS)


def config_of(*folders: str, **values: str) -> PipConfig:
    found = {name.replace("_", "-"): value for name, value in values.items()}
    made = tuple(PipSetting(key, found[key], "pip.conf [global]") for key in sorted(found))
    return PipConfig(made, home="/home/me", cwd="/work", folders=frozenset(folders))


def option(name: str, value: str = "") -> PipOption:
    return PipOption(name, value, Where("r.txt", 1))


BEST = "--index-strategy unsafe-best-match"


def values_of(name: str, planned: UvSettings) -> list[str]:
    return [value for key, value in zip(planned.arguments, planned.arguments[1:], strict=False) if key == name]


def home_with(tmp_path: Path, text: str, where: str = ".config/pip/pip.conf") -> Path:
    file = tmp_path / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return tmp_path


def read(home: Path, environment: Mapping[str, str] | None = None) -> PipConfig:
    # The machine's own /etc/pip.conf is read as well; no test asks for a key that one would have there.
    return read_pip_config({"XDG_CONFIG_DIRS": str(home / "xdg")} | dict(environment or {}), home, cwd=home)


@given(
    index=st.none() | URLS,
    extras=st.lists(URLS, max_size=4),
    links=st.lists(URLS | FOLDERS, max_size=4),
    more=st.lists(URLS, max_size=3),
)
def test_every_index_and_every_links_folder_reaches_uv(
    index: str | None, extras: list[str], links: list[str], more: list[str]
) -> None:
    config = config_of(
        *(link for link in links if link.startswith("/")),
        **({"index_url": index} if index else {}),
        extra_index_url="\n".join(extras),
        find_links="\n".join(links),
    )
    planned = plan_uv_settings(config, Recipe(options=tuple(option("extra-index-url", url) for url in more)))
    variables = dict(planned.environment)
    reached = []
    for found in values_of("--default-index", planned) + values_of("--index", planned):
        name, _, url = found.rpartition("=") if found.startswith("argosy-") else ("", "", found)
        key = f"UV_INDEX_{name.upper().replace('-', '_')}"
        reached.append((url, variables.get(f"{key}_USERNAME", ""), variables.get(f"{key}_PASSWORD", "")))
    assert {split_login(url) for url in (*([index] if index else []), *extras, *more)} <= set(reached)
    found_links = values_of("--find-links", planned) + variables.get("UV_FIND_LINKS", "").split(",")
    for link in links:
        assert (f"file://{quote(link)}" if link.startswith("/") else link.replace(",", "%2C")) in found_links
    if len(reached) > 1:
        assert values_of("--index-strategy", planned) == ["unsafe-best-match"]


@given(indexes=st.lists(URLS, max_size=3), links=st.lists(URLS, max_size=3), proxy=URLS)
def test_no_credential_is_an_argument_or_is_shown(indexes: list[str], links: list[str], proxy: str) -> None:
    config = config_of(extra_index_url=" ".join(indexes), find_links=" ".join(links), proxy=proxy)
    planned = plan_uv_settings(config, Recipe(options=(option("index-url", "https://me:planted@x.example.org/s"),)))
    for text in (*planned.arguments, *planned.notes, repr(planned)):
        assert "planted" not in text
        assert "token" not in text


@given(st.text(max_size=60) | st.lists(st.sampled_from(FRAGMENTS)).map(" ".join))
def test_any_pip_conf_parses_or_raises_an_argosy_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("home")
    (folder / "pip.conf").write_text(text, encoding="utf-8")
    with contextlib.suppress(ArgosyError):
        plan_uv_settings(read(folder, {"PIP_CONFIG_FILE": str(folder / "pip.conf")}), Recipe())


def test_later_files_win_and_each_value_names_its_source(tmp_path: Path) -> None:
    home_with(tmp_path, "[global]\nretries = 1\ntimeout = 1\npre = 1\n", "xdg/pip/pip.conf")
    home_with(tmp_path, "[global]\nretries = 2\ntimeout = 2\n", ".pip/pip.conf")
    home_with(tmp_path, "[global]\nproxy = site:1\nretries = 3\n")
    config = read(tmp_path, {"PIP_PROXY": "own:2"})
    found = {one.key: (one.value, one.source) for one in config.settings}
    assert found["retries"] == ("3", f"{tmp_path}/.config/pip/pip.conf [global]")
    assert found["timeout"] == ("2", f"{tmp_path}/.pip/pip.conf [global]")
    assert found["pre"] == ("1", f"{tmp_path}/xdg/pip/pip.conf [global]")
    assert found["proxy"] == ("own:2", "variable PIP_PROXY")


def test_the_install_section_wins_over_the_global_one_of_a_later_file(tmp_path: Path) -> None:
    home_with(tmp_path, "[install]\nretries = 1\n", ".pip/pip.conf")
    home_with(tmp_path, "[global]\nretries = 2\n[wheel]\nretries = 3\n")
    setting = read(tmp_path).find("retries")
    assert setting
    assert setting.value == "1"


def test_a_named_configuration_file_replaces_the_users(tmp_path: Path) -> None:
    home_with(tmp_path, "[global]\nretries = 2\nproxy = user:1\n")
    home_with(tmp_path, "[global]\nretries = 3\n", "own.conf")
    config = read(tmp_path, {"PIP_CONFIG_FILE": str(tmp_path / "own.conf")})
    assert config.find("proxy") is None
    assert config.find("retries") == PipSetting("retries", "3", f"{tmp_path}/own.conf [global]")


def test_the_null_device_as_configuration_file_means_no_file(tmp_path: Path) -> None:
    home_with(tmp_path, "[global]\nretries = 2\n")
    assert read(tmp_path, {"PIP_CONFIG_FILE": os.devnull}).settings == ()


def test_an_invalid_configuration_is_refused_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is invalid") as caught:
        read(home_with(tmp_path, "index-url = x\n"))
    assert str(tmp_path) in caught.value.evidence


def test_a_missing_find_links_folder_is_dropped_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    home_with(tmp_path, f"[global]\nfind-links = {tmp_path}/here {tmp_path}/gone\n")
    planned = plan_uv_settings(read(tmp_path), Recipe())
    assert values_of("--find-links", planned) == [f"file://{tmp_path}/here"]
    assert str(tmp_path / "here") in planned.local_paths
    assert any("gone" in note for note in planned.notes)


def test_certificates_and_constraints_must_be_visible_to_uv(tmp_path: Path) -> None:
    for name in ("ca.pem", "me.pem", "limits.txt", ".netrc"):
        (tmp_path / name).write_text("", encoding="utf-8")
    home_with(tmp_path, "[global]\ncert = ~/ca.pem\nclient-cert = me.pem\nconstraint = limits.txt\n")
    planned = plan_uv_settings(read(tmp_path), Recipe())
    variables = dict(planned.environment)
    assert variables["SSL_CERT_FILE"] == f"{tmp_path}/ca.pem"
    assert variables["SSL_CLIENT_CERT"] == f"{tmp_path}/me.pem"
    assert variables["NETRC"] == f"{tmp_path}/.netrc"
    assert values_of("--constraints", planned) == [f"{tmp_path}/limits.txt"]
    assert {f"{tmp_path}/{name}" for name in ("ca.pem", "me.pem", "limits.txt", ".netrc")} <= set(planned.local_paths)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pre", "perhaps"),
        ("timeout", "soon"),
        ("retries", "-1"),
        ("cert", "/gone"),
        ("constraint", "/gone"),
        ("constraint", "https://x.example.org/c.txt"),
    ],
)
def test_a_setting_that_pip_would_stop_at_is_an_error_that_names_its_source(key: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_uv_settings(config_of(**{key: value}), Recipe())
    assert "pip.conf [global]" in caught.value.evidence


def test_other_settings_are_translated_one_by_one() -> None:
    config = config_of(
        trusted_host="a:8080 b", timeout="2.5", retries="7", pre="on", no_binary="Foo_Bar", only_binary=":all:",
        proxy="proxy:3128", prefer_binary="yes", disable_pip_version_check="1",
    )  # fmt: skip
    planned = plan_uv_settings(config, Recipe(options=(option("no-binary", "lxml"),)))
    assert values_of("--allow-insecure-host", planned) == ["a:8080", "b"]
    assert values_of("--prerelease", planned) == ["allow"]
    assert values_of("--only-binary", planned) == [":all:"]
    assert values_of("--no-binary", planned) == ["lxml"]
    variables = dict(planned.environment)
    assert (variables["UV_HTTP_TIMEOUT"], variables["UV_HTTP_RETRIES"]) == ("3", "7")
    assert variables["HTTPS_PROXY"] == "http://proxy:3128"
    assert [note for note in planned.notes if "prefer-binary" in note] == list(planned.notes)


def test_an_index_in_a_file_replaces_the_configured_ones_with_a_note() -> None:
    config = config_of(index_url="https://a.example.org/s", extra_index_url="https://b.example.org/s")
    planned = plan_uv_settings(config, Recipe(options=(option("index-url", "https://c.example.org/s"),)))
    assert values_of("--default-index", planned) == ["https://c.example.org/s"]
    assert values_of("--index", planned) == []
    assert "https://b.example.org/s" in planned.notes[0]


def test_no_index_holds_whatever_a_file_adds() -> None:
    more = (option("index-url", "https://c.example.org/s"), option("extra-index-url", "https://d.example.org/s"))
    assert plan_uv_settings(config_of(no_index="true"), Recipe(options=more)).arguments == ("--no-index",)


def test_nothing_configured_leaves_uv_as_it_is() -> None:
    assert plan_uv_settings(PipConfig(), Recipe()) == UvSettings()


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ({"UV_INDEX": "mine=https://a.example/s"}, f"--default-index {PYPI} --index https://a.example/s {BEST}"),
        ({"UV_DEFAULT_INDEX": "https://a.example/s", "PIP_INDEX_URL": "https://b.example/s"},
         "--default-index https://a.example/s"),
        ({"UV_DEFAULT_INDEX": "site=https://a.example/s", "UV_INDEX_URL": "https://old.example/s"},
         "--default-index https://a.example/s"),
        ({"UV_INDEX": "https://a.example/?x=1 b=https://b", "PIP_EXTRA_INDEX_URL": "https://c"},
         f"--default-index {PYPI} --index https://c --index https://a.example/?x=1 --index https://b {BEST}"),
        ({"UV_EXTRA_INDEX_URL": "https://a.example/s", "PIP_NO_INDEX": "1"}, "--no-index"),
        ({"UV_FIND_LINKS": "HOME/my wheels,https://a.example/page", "PIP_FIND_LINKS": "HOME/gone"},
         "--find-links file://HOME/my%20wheels --find-links https://a.example/page"),
        ({"UV_INSECURE_HOST": "a.example b.example:80"},
         "--allow-insecure-host a.example --allow-insecure-host b.example:80"),
        ({"UV_INDEX": " ", "UV_PYTHON": "3.9", "UV_SYSTEM_PYTHON": "1"}, ""),
    ],
)  # fmt: skip
def test_uvs_variables_are_used_beside_pips(tmp_path: Path, variables: dict[str, str], arguments: str) -> None:
    (tmp_path / "my wheels").mkdir()
    home = str(tmp_path)
    told = {"PIP_CONFIG_FILE": "/dev/null"} | {key: value.replace("HOME", home) for key, value in variables.items()}
    planned = plan_uv_settings(read(tmp_path, told), Recipe())
    assert " ".join(planned.arguments) == arguments.replace("HOME", home)


def test_a_named_index_of_uvs_has_the_login_of_its_variables(tmp_path: Path) -> None:
    told = {
        "UV_INDEX": "my-site.eu=https://a.example/s",
        "UV_INDEX_MY_SITE_EU_USERNAME": "me",
        "UV_INDEX_MY_SITE_EU_PASSWORD": "p@s/",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    planned = plan_uv_settings(read(tmp_path, told), Recipe())
    assert values_of("--index", planned) == ["argosy-1=https://a.example/s"]
    assert dict(planned.environment)["UV_INDEX_ARGOSY_1_PASSWORD"] == told["UV_INDEX_MY_SITE_EU_PASSWORD"]


def test_uv_variables_that_would_change_versions_are_noted(tmp_path: Path) -> None:
    told = {"UV_EXCLUDE_NEWER": "2024-01-01", "UV_TORCH_BACKEND": "auto", "PIP_CONFIG_FILE": "/dev/null"}
    planned = plan_uv_settings(read(tmp_path, told), Recipe())
    assert planned.notes == (
        "variable UV_EXCLUDE_NEWER: 'exclude-newer' is ignored: use a lock file to pin versions",
        "variable UV_TORCH_BACKEND: 'torch-backend' is ignored: use --torch-backend of argosy",
    )


def make_wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def make_index(folder: Path, name: str, version: str) -> None:
    """Make a mirror as PEP 503 has it, with its pages apart from its files."""
    make_wheel(folder / "packages", name, version)
    page = folder / "simple" / name
    page.mkdir(parents=True)
    file = f"{name}-{version}-py3-none-any.whl"
    (page / "index.html").write_text(f'<a href="../../packages/{file}">{file}</a>', encoding="utf-8")


def resolve_with_uv(tmp_path: Path, config: PipConfig, requirements: str) -> Reply:
    (tmp_path / "asked.txt").write_text(requirements, encoding="utf-8")
    recipe = read_recipe(["asked.txt"], cwd=tmp_path)
    planned = plan_uv_settings(config, recipe)
    (tmp_path / "for-uv.txt").write_text(render_requirements(recipe), encoding="utf-8")
    uv = Path(sys.executable).with_name("uv")
    words: tuple[str, ...] = (
        str(uv),
        "pip",
        "install",
        "--dry-run",
        "--no-config",
        "--no-cache",
        "--python",
        sys.executable,
    )
    words += ("--target", str(tmp_path / "target"), *planned.arguments, "-r", str(tmp_path / "for-uv.txt"))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | dict(planned.environment)
    return RealRunner().run(Command(words, env=environment))


@pytest.mark.real
def test_uv_finds_a_package_that_only_pips_links_folder_has(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels, of ours", "argosyonlyhere", "1.5")
    # pip splits find-links at blanks, so a folder with blanks is named by its URL.
    url = (tmp_path / "wheels, of ours").as_uri()
    home_with(tmp_path, f"[global]\nno-index = true\nfind-links =\n    {url}\n    {tmp_path}/gone\n")
    reply = resolve_with_uv(tmp_path, read(tmp_path), "argosyonlyhere>=1\n")
    assert reply.code == 0, reply.stderr
    assert "argosyonlyhere==1.5" in reply.stderr
    without = resolve_with_uv(tmp_path, config_of(no_index="true"), "argosyonlyhere>=1\n")
    assert without.code != 0


@pytest.mark.real
def test_uv_takes_the_best_version_of_all_of_pips_indexes(tmp_path: Path) -> None:
    make_index(tmp_path / "one", "argosyonlyhere", "1.0")
    make_index(tmp_path / "two", "argosyonlyhere", "2.0")
    make_index(tmp_path / "three", "argosyother", "3.0")
    home_with(
        tmp_path, f"[global]\nindex-url = file://{tmp_path}/one/simple\nextra-index-url = {tmp_path}/two/simple\n"
    )
    asked = f"--extra-index-url file://{tmp_path}/three/simple\nargosyonlyhere\nargosyother\n"
    reply = resolve_with_uv(tmp_path, read(tmp_path), asked)
    assert reply.code == 0, reply.stderr
    assert "argosyonlyhere==2.0" in reply.stderr
    assert "argosyother==3.0" in reply.stderr
    older = resolve_with_uv(tmp_path, read(tmp_path), asked.replace("argosyonlyhere", "argosyonlyhere<2"))
    assert "argosyonlyhere==1.0" in older.stderr


@pytest.mark.real
def test_uv_takes_our_form_of_local_packages_hashes_and_markers(tmp_path: Path) -> None:
    (tmp_path / "my pkg").mkdir()
    (tmp_path / "my pkg" / "pyproject.toml").write_text(
        '[project]\nname = "argosylocal"\nversion = "1"\n[project.optional-dependencies]\nplot = []\n', encoding="utf-8"
    )
    asked = '-e "./my pkg[plot]" --config-settings a=b\nnone-such ; python_version < "3"\n'
    reply = resolve_with_uv(tmp_path, config_of(no_index="true"), asked)
    assert reply.code == 0, reply.stderr
    assert "argosylocal" in reply.stderr


def test_packages_that_are_built_against_the_others_are_named_to_uv() -> None:
    planned = plan_uv_settings(config_of(), Recipe(unisolated=("flash-attn", "apex")))
    assert values_of("--no-build-isolation-package", planned) == ["flash-attn", "apex"]
