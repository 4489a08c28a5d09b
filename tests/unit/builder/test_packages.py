"""Pins, namesakes, uv's explanations, and packages that were compiled against another PyTorch, by value."""

from __future__ import annotations

import hashlib
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.builder.backends.plan import RootfsSpec
from argosy.builder.bases.debian import parse_debian
from argosy.builder.downloads import installed_uv
from argosy.builder.python.base_python import BasePython, unused_replacements, write_search_path
from argosy.builder.python.packages import refuse_wheels_for_other_torch, write_entry_point_shims
from argosy.builder.python.pins import (
    SourcedRequirement,
    excluded_notes,
    found_hashes,
    hidden_notes,
    meets,
    parse_pin,
    pin_of,
    read_chosen,
    read_demands,
    refuse_unhashed,
    refuse_unmet_demands,
    render_pin,
    replaceable,
    vendor_builds,
)
from argosy.builder.python.uv_output import explain_uv, explain_warnings, naming_lines, naming_package
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.model import Bind, Choice
from argosy.core.process import Reply
from argosy.core.records import replace
from argosy.images.squashfs.pack import normalise_tree
from argosy.recipes.lock import LockedPackage, SourceKind
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import PipKind, PipLine, Recipe, Where
from argosy.recipes.requirements import package_of, parse_requirements
from argosy.recipes.uv_options import UvSettings
from tests.unit.machines import make_host, make_session

A, B = "a" * 64, "b" * 64

VENDOR = {"torch": "2.3.0a0+ebedce2.nv24.3"}


@pytest.mark.parametrize(
    ("line", "name", "version", "kind", "hashes"),
    [
        (f"tinypkg==2.0 --hash=sha256:{B} --hash=sha256:{A}", "tinypkg", "2.0", SourceKind.INDEX, (A, B)),
        ("Tiny.Pkg==2.0+cu128", "tiny-pkg", "2.0+cu128", SourceKind.INDEX, ()),
        ("tinypkg @ file:///x/tinypkg-2.0.whl", "tinypkg", "9", SourceKind.LOCAL, ()),
        ("tinypkg @ file:///x==1/tinypkg-2.0.whl", "tinypkg", "9", SourceKind.LOCAL, ()),
        ("tinypkg @ git+https://h/r@abc", "tinypkg", "9", SourceKind.VCS, ()),
        ("tinypkg[extra]==2.0", "tinypkg", "2.0", SourceKind.INDEX, ()),
    ],
)  # fmt: skip
def test_a_pin_is_parsed_with_its_hashes_and_origin(
    line: str, name: str, version: str, kind: SourceKind, hashes: tuple[str, ...]
) -> None:
    pin = parse_pin(line, {"tinypkg": "9"})
    package = pin.package
    assert (package.name, package.version, package.source, package.sha256) == (name, version, kind, hashes)
    assert parse_pin(render_pin(pin), {"tinypkg": "9"}) == pin


@pytest.mark.parametrize(
    ("address", "kept"),
    [("file:///x/tinypkg-2.0.whl", ""), ("https://me:planted@h/tinypkg-2.0.whl", "https://***@h/tinypkg-2.0.whl")],
)
def test_a_url_is_locked_only_if_it_is_valid_elsewhere_and_without_a_login(address: str, kept: str) -> None:
    assert parse_pin(f"tinypkg @ {address} ; python_version > '3'", {"tinypkg": "9"}).package.url == kept


def test_each_console_script_of_the_base_gets_a_namesake_that_starts_the_layers_python(tmp_path: Path) -> None:
    folder = tmp_path / "opt/argosy/env/bin"
    folder.mkdir(parents=True)
    (folder / "pip").write_text("the layer's own")
    rows = (
        ("torchrun", "torch.distributed.run:main"),
        ("pip", "pip:main"),
        ("a/b", "x:y"),
        ("odd", "x"),
        ("d", "m:c.f"),
    )
    python = BasePython("3.11.2", "/usr/bin/python3", (), rows)
    write_entry_point_shims(tmp_path, python)
    assert (folder / "pip").read_text() == "the layer's own"
    text = (folder / "torchrun").read_text()
    assert text.startswith("#!/opt/argosy/env/bin/python\n")
    assert "from torch.distributed.run import main\n" in text
    assert "sys.exit(c.f())" in (folder / "d").read_text()
    assert stat.S_IMODE((folder / "torchrun").stat().st_mode) == 0o755
    assert sorted(path.name for path in folder.iterdir()) == ["d", "pip", "torchrun"]


@pytest.mark.parametrize("link", ["", "/bin", "/bin/torchrun", "/lib", "/lib/python3.9/site-packages"])
def test_no_link_in_a_layers_environment_is_followed_on_this_machine(tmp_path: Path, link: str) -> None:
    outside, layer = tmp_path / "home", tmp_path / "layer"
    for folder in ("bin", "python3.9/site-packages", "lib/python3.9/site-packages"):
        (outside / folder).mkdir(parents=True)
    before = sorted(outside.rglob("*"))
    made = layer / f"opt/argosy/env{link}"
    made.parent.mkdir(parents=True)
    made.symlink_to(outside / "new" if link.endswith("torchrun") else outside)
    if link.startswith("/lib"):
        (layer / "opt/argosy/env/bin").mkdir()
    write_entry_point_shims(layer, BasePython("3.11.2", "/usr/bin/python3", (), (("torchrun", "torch.run:main"),)))
    write_search_path(layer)
    normalise_tree(layer)
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_wrapped_prefix_leads_into_the_image_on_pythons_search_path(tmp_path: Path, *, wrapped: bool) -> None:
    site_packages, prefix = tmp_path / "opt/argosy/env/lib/python3.9/site-packages", tmp_path / "a prefix"
    site_packages.mkdir(parents=True)
    prefix.mkdir()
    (prefix / "lib").symlink_to(tmp_path / "opt/argosy/env/lib")
    write_search_path(tmp_path)
    added = f"{prefix}/lib/python3.9/site-packages"
    code = "import site, sys; site.addsitedir(sys.argv[1]); print(sys.path[-1])"
    variables = {"ARGOSY_WRAP": str(prefix)} if wrapped else {}
    done = subprocess.run(
        [sys.executable, "-c", code, added], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (str(site_packages) if wrapped else added)
    assert not done.stderr


BUILDS = {"torch": "2.9.0a0+145a3a7bda.nv25.10", "flash-attn": "2.7.4.post1+vendor"}


def test_only_versions_that_no_index_has_are_a_vendors() -> None:
    packages = {
        "numpy": "1.26.4",
        "torch": BUILDS["torch"],
        "x": "1.0.dev3",
        "y": "1.0rc1",
        "z": "1.0+cu128",
        "w": "1.0.post1",
    }
    assert set(vendor_builds(packages.items())) == {"torch", "x", "y", "z"}


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        ("torch", True),
        ("torch==2.9.0", True),
        ("torch>=2.9", True),
        ("torch>=2,<3", True),
        ("torch==2.9.*", True),
        ("torch==2.9.0a0+145a3a7bda.nv25.10", True),
        ("torch<2.9", False),
        ("torch==2.8.0", False),
        ("torch>2.9", False),
        ("torch!=2.9.0,>=2.9", False),
        ("torch @ https://h/torch.whl", False),
    ],
)
def test_a_vendors_build_counts_as_its_release(asked: str, met: bool) -> None:  # noqa: FBT001
    assert meets(BUILDS["torch"], Requirement(asked)) is met
    assert meets("no version", Requirement(asked)) is (asked in {"torch", "torch @ https://h/torch.whl"})


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["==", ">=", "<=", "<", ">", "~="]))
def test_a_local_build_satisfies_every_requirement_that_its_release_satisfies(
    major: int, minor: int, operator: str
) -> None:
    wanted = Requirement(f"torch{operator}{major}.{minor}")
    if Version("2.9.0") in wanted.specifier:
        assert meets("2.9.0a0+nv", wanted)
        assert meets("2.9.0+cu128", wanted)


def test_an_unmet_requirement_names_both_sides_and_its_line() -> None:
    demands = [
        SourcedRequirement("env.yml:7", Requirement("torch<2")),
        SourcedRequirement("x 1.0", Requirement("numpy<1")),
    ]
    with pytest.raises(CheckFailed) as raised:
        refuse_unmet_demands(demands, BUILDS, "3.11.2")
    for text in ("torch<2", "env.yml:7", f"torch=={BUILDS['torch']}"):
        assert text in str(raised.value)


@pytest.mark.parametrize(
    "asked", ["numpy<1", "torch<2; python_version < '3.8'", "torch<2; extra == 'old'", "Torch>=2.9", "torch"]
)
def test_a_requirement_that_does_not_apply_or_is_met_passes(asked: str) -> None:
    refuse_unmet_demands([SourcedRequirement("x 1.0", Requirement(asked))], BUILDS, "3.11.2")


def test_requirements_of_packages_in_a_folder_are_read(tmp_path: Path) -> None:
    info = tmp_path / "oldtorch-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oldtorch\nVersion: 1.0\nRequires-Dist: torch<2\n")
    assert [(d.by, str(d.requirement)) for d in read_demands(tmp_path)] == [("oldtorch 1.0", "torch<2")]


@pytest.mark.parametrize(
    ("reference", "suite", "packages"),
    [
        ("debian:bookworm", "bookworm", ()),
        ("debian:trixie+git+libgomp1", "trixie", ("git", "libgomp1")),
        ("debian:bookworm+g+++libstdc++6", "bookworm", ("g++", "libstdc++6")),
        ("debian:sid+libstdc++-12-dev+libc++abi1", "sid", ("libstdc++-12-dev", "libc++abi1")),
        ("debian:bookworm-backports+python3.11-venv", "bookworm-backports", ("python3.11-venv",)),
    ],
)
def test_a_debian_base_names_its_suite_and_its_packages(reference: str, suite: str, packages: tuple[str, ...]) -> None:
    assert parse_debian(reference, {}) == (suite, packages)


@pytest.mark.parametrize(
    "reference", ["debian:", "debian:+git", "debian:bookworm+", "debian:book worm", "debian:x;rm -rf"]
)
def test_an_invalid_debian_base_is_refused(reference: str) -> None:
    with pytest.raises(UsageError, match="invalid Debian base"):
        parse_debian(reference, {})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("bookwrm", "debian:bookworm?"), ("Bookworm", "debian:bookworm?"), ("trixi+git", "debian:trixie+git?"),
        ("nobel", "debian:noble?"), ("12", "debian:bookworm? (Docker's image of that name: docker://debian:12)"),
        ("trixie-slim", "debian:trixie? (Docker's image of that name: docker://debian:trixie-slim)"),
        ("bookwrm-backports", "debian:bookworm?"),
    ],
)  # fmt: skip
def test_a_misspelt_suite_is_refused_with_the_nearest(written: str, meant: str) -> None:
    with pytest.raises(UsageError, match="no Debian suite") as caught:
        parse_debian(f"debian:{written}", {})
    assert caught.value.hint == f"did you mean {meant}"
    assert parse_debian(f"debian:{written}", {"ARGOSY_DEBIAN_MIRROR": "https://site.example/debian"})[0]


@pytest.mark.parametrize("suite", ["sid", "wheezy", "kali-rolling", "chimaera", "excalibur", "bookworm-updates"])
def test_a_suite_unlike_all_known_ones_is_left_to_the_mirror(suite: str) -> None:
    assert parse_debian(f"debian:{suite}", {}) == (suite, ())


def test_a_replaceable_package_is_no_constraint_and_the_others_stay() -> None:
    python = BasePython(
        "3.11.2", "/p", (("torch", "2.9.0a0+x"), ("numpy", "1.26")), (), "torch==2.9.0a0+x\n# no\nfoo<2\n"
    )
    kept = python.without({"torch"})
    assert kept.packages == (("numpy", "1.26"),)
    assert kept.limits == "# no\nfoo<2\n"
    assert python.without(set()) == python


def test_hidden_packages_are_noted_with_both_versions_and_a_lock_may_hide_its_own() -> None:
    (said,) = hidden_notes({"torch": "2.9.0a0+x", "numpy": "1"}, (("torch", "2.8.0"), ("numpy", "1"), ("new", "3")))
    assert said.startswith("torch 2.8.0 hides the base's 2.9.0a0+x")
    line = PipLine("torch==2.8.0", "torch", PipKind.INDEX, Where("argosy.lock", 1))
    assert replaceable(Recipe(pip=(line,), exact=True, replaceable=("numpy",))) == {"torch", "numpy"}
    assert replaceable(Recipe(pip=(line,))) == frozenset()


UV_SAYS = """\
Would install 4 packages
 + Plain.Name==1.2
 + fromgit @ git+https://host.example/a/b.git@8892
 + folder==3.1 (from file:///data/folder)
 + private @ git+https://****@host.example/p.git@77
"""


def test_urls_of_uvs_choice_come_from_its_log_without_logins() -> None:
    rows = [
        {"name": "plain-name", "version": "1.2", "action": "installed"},
        {"name": "fromgit", "action": "installed"},
        {"name": "folder", "version": "3.1", "action": "installed"},
        {"name": "private", "action": "installed"},
        {"name": "old", "version": "1", "action": "uninstalled"},
    ]
    asked = {"private": "git+https://token@host.example/p.git", "fromgit": "git+https://host.example/a/b.git"}
    chosen = read_chosen(Reply(0, json.dumps({"changes": rows}), UV_SAYS), asked)
    assert [pin_of(name, row) for name, row in chosen.items()] == [
        "plain-name==1.2",
        "fromgit @ git+https://host.example/a/b.git@8892",
        "folder @ file:///data/folder",
        "private @ git+https://token@host.example/p.git",
    ]
    assert [name for name, row in chosen.items() if "version" not in row] == ["fromgit", "private"]


# What indexes answer, as uv 0.13.9 tells it

BUSY = """\
Using Python 3.11.2 environment at: /usr
error: Request failed after 3 retries in 6.0s
  cause: Failed to fetch: http://127.0.0.1:8429/simple/six/
  cause: HTTP status client error (429 Too Many Requests) for url (http://127.0.0.1:8429/simple/six/)
"""
CLOSED = """\
  No solution found when resolving dependencies
    cause: Because six was not found in the package registry and you require six, we can conclude that your \
requirements are unsatisfiable.

  hint: An index URL (http://127.0.0.1:8431/simple) could not be queried due to a lack of valid authentication \
credentials (401 Unauthorized)
"""
NO_CONTAINER = cast("BuildContainer", None)


@pytest.mark.parametrize(
    "said",
    [
        "Failed to install: mdurl-0.1.2-py3-none-any.whl (mdurl==0.1.2)\n  cause: The wheel is invalid: Metadata field",
        "Failed to download `rich==15.0.0`\n  cause: Failed to deserialize cache entry\n  cause: invalid type",
    ],
)
def test_a_damaged_cache_entry_is_reported_with_a_next_step(said: str) -> None:
    error = explain_uv(
        NO_CONTAINER, ("pip", "install"), Reply(2, "", f"Resolved 7\nerror: {said}\n"), doing="installing"
    )
    assert error.what == "cannot read a wheel: the file or its cache entry is damaged"
    assert error.evidence.startswith("error: Failed to")
    assert "argosy cache gc" in error.hint


def test_constraints_of_pips_configuration_are_named_in_conflicts() -> None:
    settings = UvSettings(("--constraints", "/site/limits.txt"))
    text = "No solution found when resolving dependencies: Because you require six==1.16.0 and six<1.15, …"
    error = explain_uv(NO_CONTAINER, ("pip",), Reply(1, "", text), doing="choosing versions", settings=settings)
    assert error.hint.endswith("; pip's configuration has constraints, too: /site/limits.txt")


def test_a_line_that_uv_cannot_read_is_shown_with_its_place_in_the_users_file(tmp_path: Path) -> None:
    text = "# m.txt:1\ntqdm>=4 # \u00e4\n# a/m.txt:2\nx===foo-bar\n"
    (tmp_path / "requirements.in").write_text(text, encoding="utf-8")
    at = len(text[: text.index("x===")].encode())
    said = (
        f"error: Couldn't parse requirement in `{WORK_INSIDE}/requirements.in` at position {at}\n"
        "  cause: expected version to start with a number\n         x===foo-bar\n          ^^^^^^^^^^\n"
    )
    container = BuildContainer(
        Choice("build-backend", "root", "", ""), RootfsSpec("", 0), "", make_session(tmp_path),
        (Bind(str(tmp_path), WORK_INSIDE),),
    )  # fmt: skip
    error = explain_uv(container, ("pip", "install"), Reply(2, "", said), doing="choosing versions")
    assert str(error).startswith("invalid requirement")
    assert error.evidence.splitlines()[:2] == [
        "a/m.txt:2: x===foo-bar",
        "  cause: expected version to start with a number",
    ]
    assert "requirements.in" not in str(error)


def test_a_version_that_does_not_exist_is_named() -> None:
    text = (
        "  No solution found when resolving dependencies\n"
        "    cause: Because there is no version of numpy==99.1 and you require numpy==99.1, we can conclude that your\n"
        "      requirements are unsatisfiable.\n"
    )
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")
    assert error.what == "the index has no numpy==99.1"
    assert "pip index versions numpy" in error.hint


def test_a_package_for_a_newer_python_names_the_python_it_wants() -> None:
    text = (
        "  No solution found when resolving dependencies\n"
        "    cause: Because the current Python version (3.11.2) does not satisfy Python>=3.12,<4 and new==1.0\n"
        "      depends on Python>=3.12,<4, we can conclude that new==1.0 cannot be used.\n"
    )
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")
    assert "a base with Python>=3.12,<4" in error.hint


def test_a_package_for_an_older_python_names_the_bases_that_have_one() -> None:
    text = (
        "  No solution found when resolving dependencies\n"
        "    cause: Because tensorflow==2.9.0 has no wheels with a matching Python ABI tag (e.g., `cp311`) and you\n"
        "      require tensorflow==2.9, we can conclude that your requirements are unsatisfiable.\n\n"
        "    hint: You require CPython 3.11 (`cp311`), but we only found wheels for `tensorflow` (v2.9.0) with the\n"
        "      following Python ABI tags: `cp37m`, `cp38`, `cp39`, `cp310`\n"
    )
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")
    assert error.hint == (
        "tensorflow 2.9.0 has wheels only for Python 3.7, 3.8, 3.9, 3.10: use another version of it, "
        "--base debian:bullseye (Python 3.9.2), --base docker://python:3.10-slim, or python=3.10 in an environment.yml"
    )


def explain(text: str) -> ArgosyError:
    return explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cv2", "cv2 is in the package opencv-python-headless: write that name"),
        ("opencv", "opencv is in the package opencv-python-headless: write that name"),
        ("pil", "pil is in the package pillow: write that name"),
        ("yaml", "yaml is in the package pyyaml: write that name"),
        ("pkg-resources", "remove this line: pip freeze of Debian and Ubuntu adds it by mistake, and no index has it"),
    ],
)
def test_a_module_with_a_package_of_another_name_gets_that_name(name: str, hint: str) -> None:
    error = explain(
        "No solution found when resolving dependencies\n"
        f"  cause: Because {name} was not found in the package registry and you require {name}, we can conclude …\n"
    )
    assert error.hint == hint


@pytest.mark.parametrize(
    ("package", "hint"),
    [
        ("pytorch==1.0.2", "pytorch is in the package torch: write that name"),
        ("sklearn==0.0.post12", "sklearn is in the package scikit-learn: write that name"),
        ("tensorflow-gpu==2.12.0", "tensorflow-gpu is in the package tensorflow: write that name"),
    ],
)
def test_a_package_that_only_names_another_one_gets_that_name(package: str, hint: str) -> None:
    error = explain(f"error: Failed to build `{package}`\n  cause: The build backend returned an error\n")
    assert error.what.startswith(f"cannot build {package}")
    assert error.hint == hint


@pytest.mark.parametrize(
    ("platforms", "hint"),
    [
        (
            "`win32`, `win_amd64`, `win_arm64`",
            "pywin32 is only for Windows: remove it, or add to its line: ; sys_platform == 'win32'",
        ),
        (
            "`macosx_10_9_x86_64`",
            "pywin32 is only for macOS: remove it, or add to its line: ; sys_platform == 'darwin'",
        ),
        ("`win32`, `manylinux_2_36_aarch64`", "change one of these requirements; exact versions"),
    ],
)
def test_a_package_of_another_system_is_to_be_removed(platforms: str, hint: str) -> None:
    error = explain(
        "error: No solution found when resolving dependencies\n  cause: Because pywin32==306 has no wheels with a "
        "matching platform tag (e.g., `manylinux_2_36_x86_64`) and you require pywin32==306, …\n\n"
        f"hint: Wheels are available for `pywin32` (v306) on the following\n      platforms: {platforms}\n"
    )
    assert error.hint.startswith(hint)


def test_a_module_of_the_standard_library_is_no_package_to_install() -> None:
    text = (
        "  No solution found when resolving dependencies\n"
        "    cause: Because re was not found in the package registry and you require re, we can conclude that …\n"
    )
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")
    assert error.what == "the index has no package 're'"
    assert error.hint == "re is a part of Python itself: remove it from your requirements"
    lines = [
        PipLine(name, name, PipKind.INDEX, Where("r.txt", number))
        for number, name in enumerate(("re", "rich", "os"), 1)
    ]
    with pytest.raises(CheckFailed) as caught, naming_lines(lines):
        raise error
    assert caught.value.evidence.endswith("\nr.txt:1: re\nr.txt:3: os")


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (BUSY, "the index is busy: 429 Too Many Requests", "wait some minutes"),
        (BUSY.replace("client error (429 Too Many Requests", "server error (503 Service Unavailable"),
         "the index answered 503 Service Unavailable", "try again later"),
        (CLOSED, "no accessible index has a package 'six'", "login into ~/.netrc"),
        (CLOSED.partition("  hint")[0], "the index has no package 'six'", "set PIP_EXTRA_INDEX_URL, or add"),
    ],
    ids=["busy", "broken", "closed", "open"],
)  # fmt: skip
def test_an_indexs_refusal_is_explained(text: str, what: str, hint: str) -> None:
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(2, "", text), doing="choosing versions")
    assert error.what == what
    assert hint in error.hint
    assert "http" in error.evidence or "six" in error.evidence


def test_a_conflict_shows_the_lines_that_request_the_versions() -> None:
    said = (
        "No solution found when resolving dependencies\n  cause: Because you require Ruamel_yaml==1 and ruamel.yaml==2"
    )
    lines = [
        PipLine(text, name, PipKind.INDEX, Where("r.txt", number))
        for number, (name, text) in enumerate((("ruamel-yaml", "Ruamel_yaml==1"), ("rich", "rich")), 1)
    ]
    with pytest.raises(CheckFailed) as caught, naming_lines(lines):
        raise CheckFailed("no versions", evidence=said)
    assert caught.value.evidence == f"{said}\nr.txt:1: Ruamel_yaml==1"


def test_a_stale_uv_lock_is_to_be_locked_again() -> None:
    said = "No solution found when resolving dependencies\n  cause: Because you require six<1.16 and six==1.16.0"
    asked = PipLine("six<1.16", "six", PipKind.INDEX, Where("u/pyproject.toml", 5))
    locked = PipLine("six==1.16.0", "six", PipKind.INDEX, Where("u/uv.lock", 213))
    other = PipLine("rich", "rich", PipKind.INDEX, Where("u/pyproject.toml", 6))
    for lines, stale in (((asked, locked), True), ((asked,), False), ((locked,), False), ((other, locked), False)):
        with pytest.raises(CheckFailed) as caught, naming_lines(lines):
            raise CheckFailed("no versions", evidence=said, hint="change one of these requirements")
        assert (caught.value.hint == "the lock is older than the project: run 'uv lock', and build again") == stale


def test_lines_that_a_marker_excludes_are_noted(tmp_path: Path) -> None:
    """A lock, and a package that another line requests, need no note."""
    (tmp_path / "r.txt").write_text(
        'einops; python_version < "3.8"\nrich\ntqdm; sys_platform == "win32"\nsix; platform_machine == "aarch64"\n'
        'numpy<2; python_version < "3.11"\nnumpy; python_version >= "3.11"\n'
        f'locked==1; sys_platform == "win32" --hash=sha256:{"a" * 64}\n'
    )
    recipe = read_recipe(["r.txt"], cwd=tmp_path)
    ignored = "ignored, because their markers do not match the image:"
    assert excluded_notes(recipe, "3.11.2", "x86_64") == (f"{ignored} r.txt:1: einops, r.txt:3: tqdm, r.txt:4: six",)
    assert excluded_notes(recipe, "3.7.0", "aarch64") == (f"{ignored} r.txt:3: tqdm",)
    assert excluded_notes(replace(recipe, exact=True), "3.11.2", "x86_64") == ()
    assert excluded_notes(replace(recipe, pip=recipe.pip[1:2]), "3.11.2", "x86_64") == ()


def test_a_package_to_replace_that_the_base_does_not_have_is_noted() -> None:
    python = BasePython("3.11.2", "/usr/bin/python3", (("numpy", "1.26"),), (), limits="scipy<2\n")
    notes = unused_replacements(python, ("numpy", "scipy", "nmpy", "torch"))
    assert notes == (
        "--allow-replace nmpy has no effect: the base has no such package; did you mean numpy?",
        "--allow-replace torch has no effect: the base has no such package",
    )


GONE = """\
Using Python 3.11.2 environment at: /usr
error: Failed to download{built} `six @ http://127.0.0.1:8765/no/six.tar.gz`
  cause: Failed to fetch: http://127.0.0.1:8765/no/six.tar.gz
  cause: HTTP status client error (404 Not Found) for url (http://127.0.0.1:8765/no/six.tar.gz)
"""
MISMATCH = """\
Resolved 1 package in 0.80ms
error: Failed to download `six==1.17.0`
  cause: Hash mismatch for `six==1.17.0`

         Expected:
           sha256:0000000000000000000000000000000000000000000000000000000000000000

         Computed:
           sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274
"""


def named(folder: Path, text: str, said: str) -> CheckFailed:
    """Return the error for what uv said about a requirements file."""
    (folder / "r.txt").write_text(text)
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(2, "", said), doing="installing the packages")
    recipe = read_recipe(["r.txt"], cwd=folder)
    with pytest.raises(CheckFailed) as caught, naming_package(recipe.pip):
        raise error
    return caught.value


@pytest.mark.parametrize("built", ["", " and build"])
@pytest.mark.parametrize("name", ["", "six @ "])
def test_an_address_of_the_user_that_does_not_exist_is_no_fault_of_the_index(
    tmp_path: Path, name: str, built: str
) -> None:
    address = "http://127.0.0.1:8765/no/six.tar.gz"
    error = named(tmp_path, f"rich\n{name}{address}\n", GONE.format(built=built))
    assert error.what == f"the address does not exist: {address}"
    assert error.evidence.endswith(f"(404 Not Found) for url ({address})\nr.txt:2: {name}{address}")
    assert error.hint == "check the address"


def test_a_wrong_hash_names_its_line_and_what_it_may_mean(tmp_path: Path) -> None:
    error = named(tmp_path, f"rich==1 --hash=sha256:{A}\nsix==1.17.0 --hash=sha256:{'0' * 64}\n", MISMATCH)
    assert error.what == "hash mismatch: six==1.17.0 is not the file that was requested"
    assert "Computed:\n           sha256:4721" in error.evidence
    assert error.evidence.endswith(f"\nr.txt:2: six==1.17.0 --hash=sha256:{'0' * 64}")
    assert "may have been tampered with" in error.hint
    assert "verbose" not in error.hint


def test_a_hash_without_a_version_asks_for_the_version(tmp_path: Path) -> None:
    error = named(tmp_path, f"six --hash=sha256:{'0' * 64}\n", MISMATCH)
    assert error.hint.startswith("write the version that the hash belongs to (six==…)")


class TestHashes:
    COMMIT = "0123456789abcdef0123456789abcdef01234567"
    HASHED = f"six==1.16.0 --hash=sha256:{A}\n"

    def recipe(self, folder: Path, more: str) -> Recipe:
        (folder / "own").mkdir(exist_ok=True)
        (folder / "own/pyproject.toml").touch()
        (folder / "r.txt").write_text(self.HASHED + more)
        return read_recipe(["r.txt"], cwd=folder)

    def test_a_folder_and_a_commit_named_in_full_need_no_hash_beside_others_that_have_one(self, tmp_path: Path) -> None:
        git = f"git+https://git.example/mine@{self.COMMIT}"
        recipe = self.recipe(tmp_path, f"-e ./own\nmine @ {git}\n")
        rows = {"six": {"version": "1.16.0"}, "own": {"url": f"file://{tmp_path}/own"}, "mine": {"url": git}}
        refuse_unhashed(recipe, rows)

    @pytest.mark.parametrize(
        "asked", ["mine", "mine @ git+https://git.example/mine@main", "https://x.example/mine.zip"]
    )
    def test_a_source_that_may_change_needs_a_hash(self, tmp_path: Path, asked: str) -> None:
        recipe = self.recipe(tmp_path, f"{asked}\n")
        address = f"git+https://git.example/mine@{self.COMMIT}" if "git" in asked else "https://x.example/mine.zip"
        row = {"version": "1"} if asked == "mine" else {"url": address}
        with pytest.raises(CheckFailed, match="mine without a hash") as error:
            refuse_unhashed(recipe, {"six": {"version": "1.16.0"}, "mine": row})
        assert error.value.evidence == "r.txt:1: six has a hash, so every package needs one"


def test_uv_is_found_in_the_users_own_scripts_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``pip install --user`` runs the system's Python, which has no uv beside it, and PATH need not name the place."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    assert installed_uv(make_host(environment={"PATH": str(tmp_path)})).name == "uv"


def test_uvs_warnings_are_shown_with_the_line_that_requests_the_package() -> None:
    said = """\
Resolved 8 packages in 251ms
warning: `attrs==21.1.0` is yanked (reason: "Not on Python 3.4.")
warning: `click==8.2.2` is yanked
warning: The package `jax==0.6.0` does not have an extra named `cuda12-pip`
warning: The package `jax==0.6.0` does not have an extra named `cuda12-pip`
warning: Failed to hardlink files
"""
    asked = parse_requirements("numpy\njax[cuda12_pip]\nattrs==21.1.0\n", "r.txt", environment={})
    assert list(explain_warnings(said, [line for line in asked if isinstance(line, PipLine)])) == [
        "r.txt:3: attrs==21.1.0 was yanked by its authors: Not on Python 3.4.",
        "click==8.2.2 was yanked by its authors",
        "r.txt:2: jax==0.6.0 has no extra 'cuda12-pip', which is ignored",
    ]


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("Flask_Login-0.6.3-py3-none-any.whl", ("flask-login", "0.6.3")),
        ("torch-2.9.0a0+vendor-cp311-cp311-linux_x86_64.whl", ("torch", "2.9.0a0+vendor")),
        ("mpi4py-4.0.1.tar.gz", ("mpi4py", "4.0.1")),
        ("a.whl", ("", "")),
        ("README.txt", ("", "")),
        ("", ("", "")),
    ],
)
def test_a_file_of_a_folder_of_wheels_names_its_package(file: str, package: tuple[str, str]) -> None:
    assert package_of(file) == package


def test_the_hashes_of_all_files_of_a_package_are_found_in_folders(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for file in (one / "a-1-py3-none-any.whl", one / "a-2-py3-none-any.whl", one / "notes", other / "a-1.tar.gz"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(file.name)
    packages = [LockedPackage("a", "1"), LockedPackage("b", "1"), LockedPackage("a", "2", source=SourceKind.LOCAL)]
    digests = sorted(hashlib.sha256(name.encode()).hexdigest() for name in ("a-1-py3-none-any.whl", "a-1.tar.gz"))
    found = found_hashes(packages, (str(one), str(other), str(tmp_path / "gone")), tmp_path / "cache")
    assert found == {"a": tuple(digests), "b": ()}


def install(folder: Path, name: str, library: bytes) -> None:
    """Write an installed package with one extension module."""
    info = folder / f"{name}-2.3.0.dist-info"
    info.mkdir(parents=True)
    (folder / name).mkdir()
    (folder / name / "_C.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF" + library)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.3.0\n")
    (info / "RECORD").write_text(f"{name}/_C.cpython-311-x86_64-linux-gnu.so,,\n")


def test_a_wheel_that_needs_the_public_torch_is_refused_over_a_vendors(tmp_path: Path) -> None:
    install(tmp_path, "torchaudio", b"libtorch.so\0libc10.so\0")
    with pytest.raises(CheckFailed, match="cannot install torchaudio") as caught:
        refuse_wheels_for_other_torch([tmp_path], VENDOR, {"torchaudio"})
    assert "--no-build-isolation torchaudio" in caught.value.hint


@pytest.mark.parametrize(
    ("builds", "names"), [({}, {"torchaudio"}), ({"torch": "2.6.0+cu124"}, {"torchaudio"}), (VENDOR, {"numpy"})]
)
def test_other_bases_and_allowed_packages_are_not_refused(
    builds: dict[str, str], names: set[str], tmp_path: Path
) -> None:
    install(tmp_path, "torchaudio", b"libc10.so")
    install(tmp_path, "numpy", b"libopenblas.so")
    refuse_wheels_for_other_torch([tmp_path], builds, names)
