"""The package, the recipes for centres and the project's own files agree with each other."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from argosy.version import VERSION

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/argosy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")
ENVIRONMENT_MODULES = Path("/usr/lib/x86_64-linux-gnu/modulecmd.tcl")


def test_every_data_file_of_the_package_is_in_the_wheel() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["argosy"]
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file()]
    data = [str(path) for path in files if path.suffix not in {".py", ".pyc"}]
    assert [name for name in data if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert "py.typed" in data


def test_the_classifiers_name_the_pythons_that_the_tests_run_with() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [line.removeprefix(prefix) for line in PROJECT["project"]["classifiers"] if line.startswith(prefix)]
    assert PROJECT["project"]["requires-python"] == f">=3.{named[0]}"
    script = (ROOT / "tools/pythons").read_text(encoding="utf-8")
    assert f"for version in {' '.join(f'3.{minor}' for minor in named)}; do" in script
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["check"]["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in named]


def test_the_citation_the_recipes_and_the_changelog_have_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == VERSION
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f'version = "{VERSION}"' in (ROOT / f"contrib/easybuild/argosy-{VERSION}.eb").read_text(encoding="utf-8")
    assert f'version("{VERSION}"' in (ROOT / "contrib/spack/package.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", ["easybuild/argosy-0.1.0.eb", "spack/package.py"])
def test_the_recipes_are_valid_python_and_name_the_file_that_make_bundle_writes(file: str) -> None:
    text = (ROOT / "contrib" / file).read_text(encoding="utf-8")
    ast.parse(text)
    assert "argosy-0.1.0-linux-x86_64.run" in text
    assert re.search(r"^output=.*/argosy-\$version-linux-\$ARCH\.run$", bundle_part("assemble.sh"), re.MULTILINE)


def test_the_forms_for_issues_ask_for_required_facts() -> None:
    for form in ("bug.yml", "site.yml"):
        fields = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / form).read_text(encoding="utf-8"))["body"]
        assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize(
    ("program", "kind"),
    [(LMOD, "lua"), (LMOD, "tcl"), (ENVIRONMENT_MODULES, "tcl")],
    ids=["Lmod reads Lua", "Lmod reads Tcl", "Environment Modules"],
)
def test_the_modulefiles_find_their_prefix_and_load(tmp_path: Path, program: Path, kind: str) -> None:
    if not program.exists():
        pytest.skip(f"{program} is not installed (Debian: lmod or environment-modules)")
    prefix = tmp_path / "prefix"  # Lmod reads no Tcl file below a folder whose name has a blank
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/argosy").write_text("#!/bin/sh\necho argosy of the prefix\n", encoding="utf-8")
    (prefix / "bin/argosy").chmod(0o755)
    subprocess.run([ROOT / "packaging/modulefiles", prefix, VERSION], check=True)
    folder = prefix / "share/modulefiles"
    (folder / "argosy" / (f"{VERSION}.lua" if kind == "tcl" else VERSION)).unlink()
    script = (
        'module() { eval "$("$PROGRAM" bash "$@")"; }; module load argosy; argosy; '
        "module unload argosy; command -v argosy || echo gone"
    )
    env = {"PATH": "/usr/bin:/bin", "MODULEPATH": str(folder), "PROGRAM": str(program)}
    done = subprocess.run(["/bin/bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["argosy of the prefix", "gone"], done.stderr


def bundle_part(name: str) -> str:
    return (ROOT / "packaging/bundle" / name).read_text(encoding="utf-8")


def write_bundle(folder: Path, *, works: bool = True, arch: str = "") -> Path:
    """Write a bundle with a program in the place of Argosy, in the way of assemble.sh."""
    tree = folder / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "share").mkdir()
    (tree / "share/argosy-bundle").write_text("1 linux\n", encoding="utf-8")
    (tree / "bin/argosy").write_text(f"#!/bin/sh\necho argosy 1\nexit {0 if works else 127}\n", encoding="utf-8")
    (tree / "bin/argosy").chmod(0o755)
    archive = folder / "payload.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tree, ".")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    machine = arch or os.uname().machine
    text = bundle_part("install.sh")
    values = {"VERSION": "1", "ARCH": machine, "GLIBC": "2.17", "SHA256": digest, "LINES": str(text.count("\n") + 1)}
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    installer = folder / "argosy.run"
    installer.write_bytes(text.encode() + archive.read_bytes())
    return installer


def install(installer: Path, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    return subprocess.run(
        ["/bin/sh", installer, *options], env=env, capture_output=True, text=True, check=False, cwd=home
    )


def test_the_installer_installs_into_the_home_and_replaces_an_older_installation(tmp_path: Path) -> None:
    home = tmp_path / "my home"
    home.mkdir()
    installer = write_bundle(tmp_path)
    for _ in range(2):
        done = install(installer, home)
        assert (done.returncode, done.stderr) == (0, "")
        prefix = home / ".local/share/argosy"
        assert done.stdout.splitlines() == [
            f"installed: {prefix}/bin/argosy (argosy 1)",
            f'add the command to your PATH: export PATH="{home}/.local/bin:$PATH"',
        ]
        assert (home / ".local/bin/argosy").resolve() == prefix / "bin/argosy"
        assert sorted(path.name for path in prefix.parent.iterdir()) == ["argosy"]


def test_the_installer_never_replaces_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    done = install(write_bundle(tmp_path), tmp_path, "--prefix", "mine")
    assert (done.returncode, done.stdout) == (1, "")
    assert "mine exists and is not an installation of Argosy; name another folder with --prefix" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_relative_prefix_and_an_empty_folder_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = install(write_bundle(tmp_path), tmp_path, "--prefix", "empty", "--link", "links")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "links/argosy").resolve() == tmp_path / "empty/bin/argosy"


def test_a_damaged_bundle_is_not_installed(tmp_path: Path) -> None:
    installer = write_bundle(tmp_path)
    assert install(installer, tmp_path, "--check").stdout.startswith("complete: Argosy 1 for linux-")
    installer.write_bytes(installer.read_bytes()[:-9])
    done = install(installer, tmp_path, "--prefix", "there")
    assert (done.returncode, (tmp_path / "there").exists()) == (1, False)
    assert "this file is damaged" in done.stderr


def test_a_program_that_does_not_start_leaves_the_old_installation(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert install(write_bundle(tmp_path), tmp_path, "--prefix", "there").returncode == 0
    done = install(write_bundle(tmp_path / "new", works=False), tmp_path, "--prefix", "there")
    assert done.returncode == 1
    assert "it needs glibc 2.17 or later" in done.stderr
    assert subprocess.run([tmp_path / "there/bin/argosy"], capture_output=True, text=True, check=True).returncode == 0
    assert [path.name for path in tmp_path.iterdir() if "there" in path.name] == ["there"]


def test_a_bundle_for_another_architecture_is_refused(tmp_path: Path) -> None:
    done = install(write_bundle(tmp_path, arch="sparc"), tmp_path, "--prefix", "there")
    assert done.returncode == 1
    assert "this file is for sparc, and this machine is" in done.stderr


@pytest.mark.skipif(shutil.which("dash") is None, reason="dash is not installed")
def test_the_help_of_the_installer_is_its_first_comment(tmp_path: Path) -> None:
    done = install(write_bundle(tmp_path), tmp_path, "--help")
    assert done.stdout.splitlines()[0].startswith("Install Argosy 1 for linux-")
    assert "--prefix DIR" in done.stdout
    assert "print this text" in done.stdout.splitlines()[-1]
