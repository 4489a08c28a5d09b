"""Files that other tools lock with: what comes out of them, and what is said of those that cannot be meant."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from argosy.core.errors import UsageError
from argosy.recipes.read import read_recipe

HOST = "https://conda.anaconda.org/conda-forge"
SHA, MD5 = "c" * 64, "a" * 32

EXPLICIT = f"""\
# platform: linux-64
@EXPLICIT
{HOST}/linux-64/python-3.11.9-hb806964_0_cpython.conda#{MD5}
{HOST}/noarch/six-1.16.0-pyh6c4a22f_0.tar.bz2#sha256:{SHA}
"""

CONDA_LOCK = f"""\
version: 1
metadata:
  channels: [{{url: conda-forge, used_env_vars: []}}]
package:
- name: python
  version: 3.11.9
  manager: conda
  platform: linux-64
  url: {HOST}/linux-64/python-3.11.9-hb806964_0_cpython.conda
  hash: {{md5: {MD5}, sha256: {SHA}}}
  category: main
  optional: false
- name: python
  version: 3.11.9
  manager: conda
  platform: osx-64
  url: {HOST}/osx-64/python-3.11.9-x_0.conda
  hash: {{md5: {MD5}}}
  category: main
  optional: false
- name: Flask_Login
  version: 0.6.3
  manager: pip
  platform: linux-64
  url: https://files.pythonhosted.org/packages/aa/Flask_Login-0.6.3-py3-none-any.whl
  hash: {{sha256: {SHA}}}
  category: main
  optional: false
- name: pytest
  version: 8.0.0
  manager: conda
  platform: linux-64
  url: {HOST}/noarch/pytest-8.0.0-pyhd_0.conda
  hash: {{md5: {MD5}}}
  category: dev
  optional: true
"""

PIXI = f"""\
version: 6
environments:
  default:
    channels:
    - url: {HOST}/
    indexes:
    - https://pypi.org/simple
    packages:
      linux-64:
      - conda: {HOST}/linux-64/python-3.11.9-hb806964_0_cpython.conda
      - pypi: https://files.pythonhosted.org/packages/aa/six-1.16.0-py2.py3-none-any.whl
packages:
- conda: {HOST}/linux-64/python-3.11.9-hb806964_0_cpython.conda
  sha256: {SHA}
  md5: {MD5}
- pypi: https://files.pythonhosted.org/packages/aa/six-1.16.0-py2.py3-none-any.whl
  name: six
  version: 1.16.0
  sha256: {SHA}
"""

PROJECT = """\
[project]
name = "mine"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["click<9", "Six"]

[project.optional-dependencies]
gpu = ["torch"]

[[tool.uv.index]]
url = "https://download.example/cu128"

[tool.uv.sources]
six = { git = "https://git.example/six", tag = "v1" }
"""

UV_LOCK = f"""\
version = 1
requires-python = ">=3.11"

[[package]]
name = "click"
version = "8.1.7"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://x/click-8.1.7-py3-none-any.whl", hash = "sha256:{SHA}" }}]

[[package]]
name = "numpy"
version = "1.26.4"
source = {{ registry = "https://pypi.org/simple" }}
resolution-markers = ["python_version < '3.12'"]

[[package]]
name = "six"
source = {{ git = "https://git.example/six?tag=v1#0123" }}

[[package]]
name = "mine"
version = "1.0"
source = {{ virtual = "." }}
"""

PYLOCK = f"""\
lock-version = "1.0"
requires-python = ">=3.11"

[[packages]]
name = "click"
version = "8.1.7"
index = "https://pypi.org/simple"
wheels = [{{ url = "https://x/click-8.1.7-py3-none-any.whl", hashes = {{ sha256 = "{SHA}" }} }}]

[[packages]]
name = "torch"
version = "2.6.0+cu126"
marker = "sys_platform == 'linux'"
index = "https://download.example/cu126"

[[packages]]
name = "pytest"
version = "8.0"
marker = "'dev' in dependency_groups"
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


def test_an_explicit_list_gives_each_file_and_its_hash(tmp_path: Path) -> None:
    recipe = read_recipe([write(tmp_path, "spec.txt", EXPLICIT)], cwd=tmp_path)
    python, six = recipe.conda_pins
    assert (python.name, python.version, python.build) == ("python", "3.11.9", "hb806964_0_cpython")
    assert (python.md5, python.sha256) == (MD5, "")
    assert (six.md5, six.sha256, six.where.line) == ("", SHA, 4)
    assert recipe.wants_conda
    assert recipe.notes == ()


def test_an_explicit_list_is_recognised_by_its_text_and_keeps_pip_packages(tmp_path: Path) -> None:
    wheel = "https://files.pythonhosted.org/packages/aa/Flask_Login-0.6.3-py3-none-any.whl"
    git = "git+https://git.example/mine@abc"
    text = f"{EXPLICIT}# pip flask-login @ {wheel}#sha256={SHA}\n# pip mine @ {git}\n"
    recipe = read_recipe([write(tmp_path, "conda-linux-64.lock", text)], cwd=tmp_path)
    assert [pin.name for pin in recipe.conda_pins] == ["python", "six"]
    assert [(line.spec, line.hashes) for line in recipe.pip] == [
        ("flask-login==0.6.3", (f"sha256:{SHA}",)),
        (f"mine @ {git}", ()),
    ]
    with pytest.raises(UsageError, match="invalid pip package"):
        read_recipe([write(tmp_path, "other.lock", EXPLICIT + "# pip flask-login\n")], cwd=tmp_path)


def test_an_invalid_line_of_an_explicit_list_is_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid address of a conda package") as error:
        read_recipe([write(tmp_path, "spec.txt", "@EXPLICIT\nnumpy=1.26\n")], cwd=tmp_path)
    assert "spec.txt:2: numpy=1.26" in error.value.evidence


@pytest.mark.parametrize("file", ["A" * 500_000, "six-1.16-py_0.zip", "six-py_0.conda", "-1.16-py_0.conda"])
def test_an_address_of_any_length_is_a_package_only_by_its_file_name(tmp_path: Path, file: str) -> None:
    # A search for the pattern at each character takes minutes for the first one.
    with pytest.raises(UsageError, match="invalid address of a conda package"):
        read_recipe([write(tmp_path, "spec.txt", f"@EXPLICIT\nhttps://conda.example/noarch/{file}\n")], cwd=tmp_path)


def test_a_conda_lock_gives_one_platform_and_its_main_packages(tmp_path: Path) -> None:
    recipe = read_recipe([write(tmp_path, "conda-lock.yml", CONDA_LOCK)], cwd=tmp_path)
    assert [(pin.name, pin.sha256, pin.where.line) for pin in recipe.conda_pins] == [("python", SHA, 5)]
    assert [(line.spec, line.hashes) for line in recipe.pip] == [("flask-login==0.6.3", (f"sha256:{SHA}",))]
    assert "category 'dev' is not installed" in str(recipe.notes[0])
    with pytest.raises(UsageError, match="no packages for linux-aarch64") as error:
        read_recipe(["conda-lock.yml"], cwd=tmp_path, subdir="linux-aarch64")
    assert "linux-64, osx-64" in error.value.evidence


def test_a_conda_lock_of_any_name_is_recognised_and_its_categories_are_chosen(tmp_path: Path) -> None:
    write(tmp_path, "conda-lock.yml", CONDA_LOCK)
    named = read_recipe([write(tmp_path, "py311.lock.yml", CONDA_LOCK)], cwd=tmp_path)
    assert [pin.name for pin in named.conda_pins] == ["python"]
    assert [pin.name for pin in read_recipe(["conda-lock.yml[dev]"], cwd=tmp_path).conda_pins] == ["python", "pytest"]
    with pytest.raises(UsageError, match="no category 'gpu'") as error:
        read_recipe(["conda-lock.yml[gpu]"], cwd=tmp_path)
    assert error.value.hint == "use one of dev, main"


def test_a_pixi_lock_gives_the_requested_environment_by_the_name_of_its_platform(tmp_path: Path) -> None:
    text = PIXI.replace("  default:", "  cuda:").replace("      linux-64:", "      linux-cuda:")
    platforms = "platforms:\n- name: linux-cuda\n  subdir: linux-64\n"
    write(tmp_path, "pixi.lock", text.replace("version: 6\n", f"version: 7\n{platforms}"))
    assert [pin.name for pin in read_recipe(["pixi.lock[cuda]"], cwd=tmp_path).conda_pins] == ["python"]
    with pytest.raises(UsageError, match="no environment 'default'") as error:
        read_recipe(["pixi.lock"], cwd=tmp_path)
    assert error.value.hint == "known: pixi.lock[cuda]"
    empty = text.replace("  cuda:\n", "  default:\n    packages: {}\n  cuda:\n")
    with pytest.raises(UsageError, match=r"that environment in .* is empty") as error:
        read_recipe([write(tmp_path, "pixi.lock", empty)], cwd=tmp_path)
    assert error.value.hint == "other environments: pixi.lock[cuda]"


def test_a_package_that_pixi_builds_is_refused_with_its_line(tmp_path: Path) -> None:
    text = PIXI.replace(
        f"- conda: {HOST}/linux-64/python-3.11.9-hb806964_0_cpython.conda", "- conda_source: mine[1f] @ ."
    )
    with pytest.raises(UsageError, match="not built yet") as error:
        read_recipe([write(tmp_path, "pixi.lock", text)], cwd=tmp_path)
    assert error.value.evidence == "pixi.lock:13: mine[1f] @ ."


@pytest.mark.parametrize(
    ("table", "lock"),
    [
        ("[tool.pixi.dependencies]\ncuda = '12.*'\n", "pixi.lock"),
        ("[tool.pixi.feature.gpu.dependencies]\ncuda = '12.*'\n", "pixi.lock"),
        ("[tool.conda-lock.dependencies]\nsqlite = '*'\n", "conda-lock.yml"),
    ],
)
def test_conda_packages_of_a_project_are_noted(tmp_path: Path, table: str, lock: str) -> None:
    recipe = read_recipe([write(tmp_path, "pyproject.toml", PROJECT + table)], cwd=tmp_path)
    assert f"pass {lock} to install them" in str(recipe.notes[-1])


BOMB = "".join(f"{to}: &{to} [{','.join(['*' + of] * 10)}]\n" for of, to in pairwise("abcdefghijk"))
"""Each list holds the one before it ten times: written out, it is a billion words."""


@pytest.mark.parametrize(
    ("name", "text", "evidence"),
    [
        (
            "conda-lock.yml",
            "version: 1\npackage: [{name: *k, version: *k, url: *k, platform: linux-64}]",
            "lock.yml:1:",
        ),
        ("pixi.lock", "environments: {default: {packages: {linux-64: [{conda: *k}]}}}\n", "pixi.lock:1:"),
        ("pixi.lock", "environments: {default: {packages: {linux-64: [conda]}}}\n", "`object`, got `str`"),
        ("conda-lock.yml", "package: [{name: a, version: 1, url: b, hash: c}]\n", "$.package[0].hash"),
        ("uv.lock", 'version = 1\n[[package]]\nname = "a"\ndependencies = ["b"]\n', "$.package[0].dependencies[0]"),
        ("pylock.toml", 'lock-version = "1.0"\n[[packages]]\nname = "a"\n', "pylock.toml:3"),
        ("pylock.toml", 'lock-version = "1.0"\n[[packages]]\nname = "a"\nwheels = "x"\n', "$.packages[0].wheels"),
    ],
)
def test_a_lock_of_another_format_is_refused_with_its_line(tmp_path: Path, name: str, text: str, evidence: str) -> None:
    write(tmp_path, "pyproject.toml", PROJECT)
    bomb = f"a: &a [x]\n{BOMB}" if name.endswith((".yml", "pixi.lock")) else ""
    with pytest.raises(UsageError) as error:
        read_recipe([write(tmp_path, name, bomb + text)], cwd=tmp_path)
    assert evidence in error.value.evidence


@pytest.mark.parametrize("name", ["environment.yml", "pixi.lock", "conda-lock.yml"])
@pytest.mark.parametrize("text", ["a: " + "[" * 50_000, "a:\n" + "- " * 50_000 + "a\n"])
def test_lists_in_lists_without_end_are_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match="is nested too deeply"):
        read_recipe([write(tmp_path, name, text)], cwd=tmp_path)


def test_a_pixi_project_is_refused_with_its_lock_file(tmp_path: Path) -> None:
    for name in ("pixi.toml", "pyproject.toml"):
        with pytest.raises(UsageError) as error:
            read_recipe([write(tmp_path, name, "[tool.pixi.dependencies]\npython = '3.11'\n")], cwd=tmp_path)
        assert error.value.hint == "pass the pixi.lock that 'pixi lock' writes"


def test_a_pixi_lock_gives_its_default_environment(tmp_path: Path) -> None:
    recipe = read_recipe([write(tmp_path, "pixi.lock", PIXI)], cwd=tmp_path)
    assert [(pin.name, pin.md5, pin.where.line) for pin in recipe.conda_pins] == [("python", MD5, 13)]
    assert [(line.spec, line.hashes) for line in recipe.pip] == [("six==1.16.0", (f"sha256:{SHA}",))]
    assert [(option.name, option.value) for option in recipe.options] == [("index-url", "https://pypi.org/simple")]
    with pytest.raises(UsageError, match="no environment 'default'"):
        read_recipe([write(tmp_path, "pixi.lock", "version: 6\nenvironments: {}\n")], cwd=tmp_path)


def pixi_lock(url: str, row: str = "") -> str:
    """Return a pixi.lock with one package of PyPI's kind."""
    head, middle, _ = PIXI.replace(
        "https://files.pythonhosted.org/packages/aa/six-1.16.0-py2.py3-none-any.whl", url
    ).rpartition("- pypi: ")
    return f"{head}{middle}{url}\n{row}"


COMMIT = "2579ce9f18e67ec3213c6eceb5240310ccd46af8"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (f"git+https://git.example/flask#{COMMIT}", f"git+https://git.example/flask@{COMMIT}"),
        (f"git+https://git.example/httpx.git?rev=v1#{COMMIT}", f"git+https://git.example/httpx.git@{COMMIT}"),
        (
            f"git+ssh://git@git.example/mono?subdirectory=a%2Fb&rev=x%2Fy#{COMMIT}",
            f"git+ssh://git@git.example/mono@{COMMIT}#subdirectory=a/b",
        ),
        (
            f"git+https://git.example/mono@{COMMIT}#subdirectory=a",
            f"git+https://git.example/mono@{COMMIT}#subdirectory=a",
        ),
    ],
)
def test_a_git_package_of_a_pixi_lock_is_installed_at_its_locked_commit(tmp_path: Path, url: str, address: str) -> None:
    write(tmp_path, "pixi.lock", pixi_lock(url, "  name: Mine\n  version: 2.0.0\n"))
    (line,) = read_recipe(["pixi.lock"], cwd=tmp_path).pip
    assert line.spec == f"mine @ {address}"


@pytest.mark.parametrize("url", ["./", ".", "../lock"])
def test_a_local_project_of_a_pixi_lock_is_not_replaced_by_a_package_of_the_index(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "lock"
    folder.mkdir()
    write(folder, "pyproject.toml", PROJECT)
    row = f"  name: mine\n  version: 1.0\n  sha256: {SHA}\n  editable: true\n"
    write(folder, "pixi.lock", pixi_lock(url, row))
    recipe = read_recipe(["lock/pixi.lock"], cwd=tmp_path)
    assert [(line.path, line.spec, line.hashes) for line in recipe.pip] == [(str(folder), "", ())]
    assert "not installed as editable" in str(recipe.notes[0])


@pytest.mark.parametrize("name", ["foo.tar.gz", "links/requests-2.31.0-py3-none-any.whl"])
def test_a_local_archive_of_a_pixi_lock_keeps_its_path_and_hash(tmp_path: Path, name: str) -> None:
    (tmp_path / "links").mkdir()
    write(tmp_path, name, "")
    write(tmp_path, "pixi.lock", pixi_lock(f"./{name}", f"  name: requests\n  version: 2.31.0\n  sha256: {SHA}\n"))
    (line,) = read_recipe(["pixi.lock"], cwd=tmp_path).pip
    assert (line.path, line.hashes) == (str(tmp_path / name), (f"sha256:{SHA}",))


@pytest.mark.parametrize(
    ("url", "spec"),
    [
        (
            "direct+https://x.example/click-8.1.7-py3-none-any.whl",
            "mine @ https://x.example/click-8.1.7-py3-none-any.whl",
        ),
        ("direct+https://pypi.org/a/mine-8.zip", "mine @ https://pypi.org/a/mine-8.zip"),
        ("https://x.example/v6.1.tar.gz", "mine @ https://x.example/v6.1.tar.gz"),
        ("https://pypi.org/files/mine-8.1.7-py3-none-any.whl", "mine==8.1.7"),
        ("https://files.pythonhosted.org/packages/aa/mine-8.1.7.tar.gz", "mine==8.1.7"),
        ("https://download-r2.pytorch.org/whl/mine-8.1.7.tar.gz", "mine==8.1.7"),
        ("https://${USER}:${TOKEN}@private.example/mine-8.1.7.tar.gz", "mine==8.1.7"),
    ],
)
def test_a_package_that_pixi_locked_at_a_url_comes_from_there(tmp_path: Path, url: str, spec: str) -> None:
    lock = pixi_lock(url, f"  name: mine\n  version: 8.1.7\n  sha256: {SHA}\n")
    write(
        tmp_path,
        "pixi.lock",
        lock.replace("pypi.org/simple\n", "pypi.org/simple\n    - https://download.pytorch.org/whl/cu128\n"),
    )
    (line,) = read_recipe(["pixi.lock"], cwd=tmp_path).pip
    assert (line.spec, line.hashes) == (spec, (f"sha256:{SHA}",))


def test_the_index_of_one_package_of_a_pixi_lock_is_an_index(tmp_path: Path) -> None:
    row = f"  name: mine\n  version: 8.1.7\n  sha256: {SHA}\n  index: https://own.example/simple\n"
    write(tmp_path, "pixi.lock", pixi_lock("https://own.example/files/mine-8.1.7.tar.gz", row))
    (line,) = read_recipe(["pixi.lock"], cwd=tmp_path).pip
    assert line.spec == "mine==8.1.7"


@pytest.mark.parametrize(
    ("url", "source", "address"),
    [
        ("https://git.example/archive/v6.1.tar.gz", "", "https://git.example/archive/v6.1.tar.gz"),
        (
            "https://files.pythonhosted.org/packages/aa/mine-0.6.3-py3-none-any.whl",
            "source: {type: url, url: 'https://files.pythonhosted.org/packages/aa/mine-0.6.3-py3-none-any.whl'}",
            "https://files.pythonhosted.org/packages/aa/mine-0.6.3-py3-none-any.whl",
        ),
        (f"git+https://git.example/mine@{COMMIT}", "", f"git+https://git.example/mine@{COMMIT}"),
    ],
)
def test_a_package_that_conda_lock_locked_at_a_url_comes_from_there(
    tmp_path: Path, url: str, source: str, address: str
) -> None:
    wheel = "https://files.pythonhosted.org/packages/aa/Flask_Login-0.6.3-py3-none-any.whl"
    write(tmp_path, "conda-lock.yml", CONDA_LOCK.replace(f"url: {wheel}", f"url: {url}\n  {source}".rstrip()))
    (line,) = read_recipe(["conda-lock.yml"], cwd=tmp_path).pip
    assert line.spec == f"flask-login @ {address}"
    assert line.hashes == (() if url.startswith("git+") else (f"sha256:{SHA}",))


@pytest.mark.parametrize(
    ("address", "spec"),
    [
        ("https://files.pythonhosted.org/packages/3e/38/antlr4-python3-runtime-4.9.3.tar.gz", "a==4.9.3"),
        ("https://files.pythonhosted.org/packages/3e/38/a-4.9.3.tar.bz2", "a @ {}"),
        ("https://git.example/archive/v6.1.tar.gz", "a @ {}"),
    ],
)
def test_an_explicit_list_may_contain_source_archives_for_pip(tmp_path: Path, address: str, spec: str) -> None:
    text = f"{EXPLICIT}# pip a @ {address}#sha256={SHA}\n"
    (line,) = read_recipe([write(tmp_path, "conda-linux-64.lock", text)], cwd=tmp_path).pip
    assert (line.spec, line.hashes) == (spec.format(address), (f"sha256:{SHA}",))


def test_a_project_gives_dependencies_index_and_sources(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", PROJECT)
    recipe = read_recipe(["pyproject.toml[gpu]"], cwd=tmp_path)
    specs = [line.spec for line in recipe.pip]
    assert specs == ["click<9", "six @ git+https://git.example/six@v1", "torch"]
    assert [(option.name, option.value) for option in recipe.options] == [
        ("extra-index-url", "https://download.example/cu128")
    ]
    assert recipe.python == ">=3.11"
    with pytest.raises(UsageError, match="no extra 'cpu'"):
        read_recipe(["pyproject.toml[cpu]"], cwd=tmp_path)


def test_a_uv_lock_holds_the_versions_of_its_project(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", PROJECT)
    write(tmp_path, "uv.lock", UV_LOCK)
    recipe = read_recipe(["pyproject.toml"], cwd=tmp_path)
    assert recipe == read_recipe(["uv.lock"], cwd=tmp_path)
    constraints = {line.spec: line.hashes for line in recipe.constraints}
    assert constraints == {"click==8.1.7": (f"sha256:{SHA}",), 'numpy==1.26.4 ; python_version < "3.12"': ()}
    assert [Path(source.path).name for source in recipe.sources] == ["pyproject.toml", "uv.lock"]


def test_a_pylock_gives_each_package_whose_marker_applies(tmp_path: Path) -> None:
    recipe = read_recipe([write(tmp_path, "pylock.toml", PYLOCK)], cwd=tmp_path)
    assert [line.spec for line in recipe.pip] == ["click==8.1.7", 'torch==2.6.0+cu126 ; sys_platform == "linux"']
    assert [option.value for option in recipe.options] == ["https://download.example/cu126"]
    assert next((line.spec, line.hashes) for line in recipe.overrides) == ("click==8.1.7", ())
    write(tmp_path, "more.txt", "click<8\n")
    assert read_recipe(["pylock.toml", "more.txt"], cwd=tmp_path).overrides == ()
    assert "pytest is not installed" in str(recipe.notes[0])


GROUPS = """\
lock-version = "1.0"
extras = ["GPU"]
dependency-groups = ["base", "dev"]
default-groups = ["base"]
[[packages]]
name = "always"
version = "1"
[[packages]]
name = "torch"
version = "2"
marker = "'gpu' in extras"
[[packages]]
name = "of-base"
version = "1"
marker = "'base' in dependency_groups"
[[packages]]
name = "either"
version = "1"
marker = "'dev' in dependency_groups or sys_platform == 'linux'"
[[packages]]
name = "unless"
version = "1"
marker = "'gpu' not in extras and 'dev' not in dependency_groups"
"""


@pytest.mark.parametrize(
    ("asked", "names", "left"),
    [("", ["always", "of-base", "either", "unless"], 1), ("[gpu]", ["always", "torch", "of-base", "either"], 1)],
)
def test_a_pylock_gives_its_default_groups_and_the_requested_extras(
    tmp_path: Path, asked: str, names: list[str], left: int
) -> None:
    recipe = read_recipe([write(tmp_path, "pylock.toml", GROUPS) + asked], cwd=tmp_path)
    assert [line.name for line in recipe.pip] == names
    assert len(recipe.notes) == left
    either = next(line.spec for line in recipe.pip if line.name == "either")
    assert Requirement(either).marker is not None
    with pytest.raises(UsageError, match="no extra or group 'cpu'"):
        read_recipe(["pylock.toml[cpu]"], cwd=tmp_path)


SOURCES = """\
lock-version = "1.0"
[[packages]]
name = "folder"
directory = {path = "mono", subdirectory = "python", editable = true}
[[packages]]
name = "repository"
vcs = {type = "git", url = "https://git.example/mono", commit-id = "0123abc", subdirectory = "python"}
[[packages]]
name = "archive"
archive = {url = "https://files.example/mono.tar.gz", subdirectory = "python", hashes = {sha256 = "SHA"}}
[[packages]]
name = "local"
archive = {path = "local-1.0.tar.gz", hashes = {sha256 = "SHA"}}
""".replace("SHA", SHA)


def test_a_pylock_gives_the_folders_repositories_and_archives_of_packages(tmp_path: Path) -> None:
    write(tmp_path, "local-1.0.tar.gz", "")
    (tmp_path / "mono/python").mkdir(parents=True)
    write(tmp_path / "mono/python", "pyproject.toml", PROJECT)
    recipe = read_recipe([write(tmp_path, "pylock.toml", SOURCES)], cwd=tmp_path)
    folder, repository, archive, local = recipe.pip
    assert folder.path == str(tmp_path / "mono/python")
    assert "not installed as editable" in str(recipe.notes[0])
    assert repository.spec == "repository @ git+https://git.example/mono@0123abc#subdirectory=python"
    assert archive.spec == "archive @ https://files.example/mono.tar.gz#subdirectory=python"
    assert (local.path, local.hashes) == (str(tmp_path / "local-1.0.tar.gz"), (f"sha256:{SHA}",))
    for old, new, message in (
        ('type = "git"', 'type = "hg"', "git is the only supported version control"),
        ('url = "https://git.example/mono"', 'path = "mono"', "repository has no URL in the lock"),
    ):
        with pytest.raises(UsageError, match=message):
            read_recipe([write(tmp_path, "pylock.toml", SOURCES.replace(old, new))], cwd=tmp_path)


def test_a_package_cannot_be_added_to_a_complete_list(tmp_path: Path) -> None:
    write(tmp_path, "spec.txt", EXPLICIT)
    write(tmp_path, "environment.yml", "channels: [conda-forge]\ndependencies: [python=3.11, scipy]\n")
    with pytest.raises(UsageError, match="cannot add scipy to a complete list"):
        read_recipe(["spec.txt", "environment.yml"], cwd=tmp_path)


@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock", "pylock.toml", "pixi.lock", "conda-lock.yml"])
@pytest.mark.parametrize("text", ["", "- [", "a = 1\n", "a: 1\n", "[project]\n", "version = 1\npackage = 3\n"])
def test_every_text_of_another_tool_is_parsed_or_an_explained_error(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, "pyproject.toml", PROJECT)
    write(tmp_path, name, text)
    said = ""
    try:
        read_recipe([name], cwd=tmp_path)
    except UsageError as error:
        said = str(error)
    assert not said or name in said


def test_a_list_of_another_platform_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arm.lock").write_text(EXPLICIT.replace("linux-64/python", "linux-aarch64/python"))
    with pytest.raises(UsageError, match="no packages for linux-64") as error:
        read_recipe(["arm.lock"], cwd=tmp_path)
    assert error.value.evidence == "it has packages for linux-aarch64"
    assert read_recipe(["arm.lock"], cwd=tmp_path, subdir="linux-aarch64").conda_pins[0].name == "python"
