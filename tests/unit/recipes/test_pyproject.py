"""What a project's pyproject.toml asks for: extras, groups, files that its build reads, and what uv's tables change."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.recipes.pip_settings import PipConfig
from argosy.recipes.pyproject import NOT_INSTALLED
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import PipIndex, PipKind, Recipe
from argosy.recipes.relock import locked_indexes
from argosy.recipes.uv_options import plan_uv_settings, render_overrides, render_project, render_requirements

SHA = "a" * 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def project(folder: Path, text: str, *, asked: str = "", lock: str = "") -> Recipe:
    (folder / "pyproject.toml").write_text(text)
    if lock:
        (folder / "uv.lock").write_text(f"version = 1\n{lock}")
    return read_recipe([f"pyproject.toml{asked}"], cwd=folder)


def specs(recipe: Recipe) -> list[str]:
    return [line.requirement for line in recipe.pip]


EXTRAS = """\
[project]
name = "My.Tool"
dependencies = ["click"]
[project.optional-dependencies]
gpu = ["torch>=2"]
Test_All = ["my-tool[gpu]", "pytest"]
[dependency-groups]
lint = ["ruff"]
dev = ["tox", {include-group = "lint"}]
"""


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("", ["click"]),
        ("[gpu]", ["click", "torch>=2"]),
        ("[test-all]", ["click", "torch>=2", "pytest"]),
        ("[dev]", ["click", "tox", "ruff"]),
        ("[dev,lint]", ["click", "tox", "ruff"]),
    ],
)
def test_extras_that_name_the_project_itself_and_groups_are_followed(
    tmp_path: Path, asked: str, wanted: list[str]
) -> None:
    assert specs(project(tmp_path, EXTRAS, asked=asked)) == wanted


UV_GROUPS = """\
[project]
name = "mine"
[project.optional-dependencies]
gpu = ["torch"]
[dependency-groups]
cuda12 = ["six"]
Dev = ["idna"]
docs = ["mkdocs"]
[tool.uv]
"""


@pytest.mark.parametrize(
    ("asked", "default", "noted"),
    [
        ("", '["dev", "cuda12"]', "cuda12, Dev; to install them, pass pyproject.toml[cuda12,Dev]"),
        ("[gpu,cuda12]", '["dev", "cuda12"]', "Dev; to install them, pass pyproject.toml[gpu,cuda12,Dev]"),
        ("[dev]", '"all"', "cuda12, docs; to install them, pass pyproject.toml[dev,cuda12,docs]"),
        ("[dev,cuda12]", '["dev", "cuda12"]', ""),
        ("", "[]", ""),
        ("", "3", ""),
    ],
)
def test_default_groups_of_uv_that_are_not_installed_are_noted(
    tmp_path: Path, asked: str, default: str, noted: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{UV_GROUPS}default-groups = {default}\n")
    notes = read_recipe([f"pyproject.toml{asked}"], cwd=tmp_path).notes
    found = [note for note in notes if "default groups" in note.text]
    assert [note.text.partition("not installed: ")[2] for note in found] == ([noted] if noted else [])
    assert all(note.where and note.where.line == 10 for note in found)


@pytest.mark.parametrize(
    ("asked", "names"), [("[dev]", ["torch", "idna", "pytest"]), ("[docs]", ["torch", "mkdocs"]), ("", ["torch"])]
)
def test_dev_dependencies_of_uv_belong_to_the_group_dev(tmp_path: Path, asked: str, names: list[str]) -> None:
    text = UV_GROUPS.replace('"mine"\n', '"mine"\ndependencies = ["torch"]\n')
    (tmp_path / "pyproject.toml").write_text(f'{text}dev-dependencies = ["pytest"]\n')
    assert [line.name for line in read_recipe([f"pyproject.toml{asked}"], cwd=tmp_path).pip] == names


def test_dev_dependencies_alone_are_a_group(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.uv]\ndev-dependencies = ["pytest"]\n')
    assert [line.name for line in read_recipe(["pyproject.toml[dev]"], cwd=tmp_path).pip] == ["pytest"]


def test_an_unknown_extra_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no extra 'cpu' and no group of that name") as error:
        project(tmp_path, EXTRAS, asked="[cpu]")
    assert "gpu, test-all; groups: lint, dev" in error.value.evidence


DYNAMIC = """\
[project]
name = "dyn"
dynamic = ["version", "dependencies", "optional-dependencies"]
[tool.setuptools.dynamic]
dependencies = {file = ["requirements.txt"]}
optional-dependencies.dev = {file = "dev.txt"}
"""
OF_HATCH = """\
[project]
name = "dyn"
dynamic = ["dependencies"]
[tool.hatch.metadata.hooks.requirements_txt]
files = ["requirements.txt"]
[tool.hatch.metadata.hooks.requirements_txt.optional-dependencies]
dev = ["dev.txt"]
"""


@pytest.mark.parametrize("text", [DYNAMIC, OF_HATCH])
def test_files_that_the_projects_build_takes_dependencies_from_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.txt").write_text("numpy<2\n")
    (tmp_path / "dev.txt").write_text("pytest\n")
    assert specs(project(tmp_path, text)) == ["numpy<2"]
    both = project(tmp_path, text, asked="[dev]")
    assert specs(both) == ["numpy<2", "pytest"]
    assert [Path(source.path).name for source in both.sources] == ["pyproject.toml", "requirements.txt", "dev.txt"]


def test_dependencies_that_only_the_build_knows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dependencies in .* \(dynamic\)"):
        project(tmp_path, '[project]\nname = "x"\ndynamic = ["dependencies"]\n')


def test_a_poetry_project_is_refused_with_its_lock_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \[project\]") as error:
        project(tmp_path, '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\npython = "^3.10"\n')
    assert "pyproject.toml:1: a Poetry project" in error.value.evidence
    assert "poetry.lock" in error.value.hint


def test_a_project_of_setup_py_is_added_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \[project\]") as error:
        project(tmp_path, "[tool.ruff]\nline-length = 100\n")
    hint = "if the folder has a setup.py or a setup.cfg, the line ./ in a requirements.txt adds its project"
    assert hint in error.value.hint
    (tmp_path / "setup.py").touch()
    with pytest.raises(UsageError, match=r"Argosy does not support setup\.py as a list of packages") as error:
        read_recipe(["setup.py"], cwd=tmp_path)
    assert error.value.hint == "write the folder, for example ./, into a requirements.txt"
    (tmp_path / "pyproject.toml").unlink()
    with pytest.raises(UsageError, match="it is a folder without") as error:
        read_recipe([str(tmp_path)])
    assert error.value.hint.startswith("write the line ./ into a requirements.txt in it, and pass that file")


def test_a_folder_with_only_setup_cfg_is_not_a_project(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").touch()
    (tmp_path / "requirements.txt").write_text("./\n")
    for file in ("setup.cfg", "requirements.txt"):
        with pytest.raises(UsageError) as error:
            read_recipe([file], cwd=tmp_path)
        assert "pyproject.toml or" in f"{error.value.what} {error.value.hint}"


POETRY = '[project]\nname = "x"\ndependencies = ["click"]\n[tool.poetry.dependencies]\npython = "^3.10"\n'


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        (f'{POETRY}requests = "^2"\n', "pyproject.toml:4: requests"),
        (f'{POETRY}Click = {{ git = "https://git.example/click" }}\n', "pyproject.toml:4: Click"),
        (f'{POETRY}click = [{{ version = "8", source = "ours" }}]\n', "pyproject.toml:4: click"),
        (
            '[dependency-groups]\ndev = ["x"]\n[tool.poetry.dependencies]\nrequests = "*"\n',
            "pyproject.toml:3: requests",
        ),
    ],
)
def test_packages_that_poetry_alone_would_install_are_refused(tmp_path: Path, text: str, evidence: str) -> None:
    with pytest.raises(UsageError, match=r"\[tool.poetry.dependencies\], which Argosy does not read") as error:
        project(tmp_path, text, asked="" if "[project]" in text else "[dev]")
    assert error.value.evidence == evidence
    assert "poetry.lock" in error.value.hint


def test_poetrys_repeated_dependencies_are_accepted(tmp_path: Path) -> None:
    more = 'Click = ">=8"\nrequests = { version = "^2", optional = true }\n'
    assert specs(project(tmp_path, POETRY + more)) == ["click"]


@pytest.mark.parametrize(
    ("text", "evidence", "hint"),
    [
        ('[dependency-groups]\ndev = ["requests"]\n', "pyproject.toml:1: groups dev", "pyproject.toml[dev]"),
        (
            '[project]\nname = "x"\n[tool.poetry.group.test.dependencies]\nrequests = "*"\n',
            "pyproject.toml:3: groups test",
            "poetry.lock[test]",
        ),
        (
            '[project]\nname = "x"\n[tool.poetry.dev-dependencies]\nrequests = "*"\n',
            "pyproject.toml:3: groups dev",
            "poetry.lock[dev]",
        ),
    ],
)
def test_packages_only_in_groups_are_refused_if_no_group_is_requested(
    tmp_path: Path, text: str, evidence: str, hint: str
) -> None:
    with pytest.raises(UsageError, match="no group was requested") as error:
        project(tmp_path, text)
    assert error.value.evidence == evidence
    assert hint in error.value.hint


def test_a_poetry_project_with_dynamic_dependencies_is_refused_with_its_lock_file(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\ndynamic = ["dependencies"]\n[tool.poetry.dependencies]\nrequests = "*"\n'
    with pytest.raises(UsageError, match=r"dependencies in .* \(dynamic\)") as error:
        project(tmp_path, text)
    assert "poetry.lock" in error.value.hint


@pytest.mark.parametrize(
    ("table", "noted"),
    [
        ('[tool.poetry.group.dev.dependencies]\npytest = "*"', "[tool.poetry] are not installed: pytest"),
        ('[tool.pdm.dev-dependencies]\ntest = ["pytest"]', "[tool.pdm] are not installed: pytest"),
        ('[tool.hatch.envs.default]\ndependencies = ["pytest"]', "[tool.hatch.envs] are not installed: pytest"),
        ('[tool.pixi.pypi-dependencies]\nx = { path = "." }\nrequests = "*"', "[tool.pixi] are not installed"),
        ('[tool.pixi.target.linux-64.dependencies]\ncuda = "*"', "[tool.pixi] are not installed"),
        ('[tool.pixi.feature.gpu.target.linux-64.dependencies]\ncuda = "*"', "[tool.pixi] are not installed"),
        ('[tool.conda-lock.dependencies]\ncuda = "*"', "[tool.conda-lock] are not installed"),
        ('[[tool.pdm.source]]\nurl = "https://x.example"', "[[tool.pdm.source]] are not used"),
        ('[[tool.poetry.source]]\nurl = "https://x.example"', "[[tool.poetry.source]] are not used"),
        ('[tool.pdm.resolution.overrides]\nidna = "1"', "overrides of [tool.pdm.resolution] are ignored"),
    ],
)
def test_tables_that_other_tools_would_install_are_noted(tmp_path: Path, table: str, noted: str) -> None:
    recipe = project(tmp_path, f'[project]\nname = "x"\ndependencies = ["click"]\n{table}\n')
    assert specs(recipe) == ["click"]
    (note,) = [note for note in recipe.notes if noted in note.text]
    assert note.where is not None
    assert note.where.line == 4


def test_a_pixi_table_that_names_only_the_project_itself_is_not_noted(tmp_path: Path) -> None:
    table = '[tool.pixi.pypi-dependencies]\nX = { path = ".", editable = true }\n'
    recipe = project(tmp_path, f'[project]\nname = "x"\ndependencies = ["click"]\n{table}')
    assert not [note for note in recipe.notes if "pixi" in note.text]


SOURCES = """\
[project]
name = "x"
dependencies = ["torch>=2.5", "click[extra]>=8 ; python_version > '3'", "lib"]
[tool.uv]
constraint-dependencies = ["certifi<2025"]
override-dependencies = ["idna==2.0", "torch==2.4"]
no-build-isolation-package = ["Flash_Attn"]
no-binary-package = ["mpi4py"]
[tool.uv.sources]
torch = [
  { index = "mac", marker = "sys_platform == 'darwin'" },
  { index = "cpu", extra = "cpu" },
  { index = "gpu", marker = "sys_platform == 'linux'" },
]
click = { git = "https://git.example/click", rev = "v8", subdirectory = "python" }
lib = { path = "lib", editable = true }
[[tool.uv.index]]
name = "mac"
url = "https://download.example/mac"
explicit = true
[[tool.uv.index]]
name = "gpu"
url = "https://download.example/cu124"
explicit = true
"""


def test_uvs_tables_are_used(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/pyproject.toml").touch()
    recipe = project(tmp_path, SOURCES)
    click = 'click[extra] @ git+https://git.example/click@v8#subdirectory=python ; python_version > "3"'
    assert specs(recipe) == ["torch>=2.5", click, f"lib @ file://{tmp_path}/lib"]
    assert [line.kind for line in recipe.pip] == [PipKind.INDEX, PipKind.VCS, PipKind.LOCAL]
    assert [line.spec for line in recipe.constraints] == ["certifi<2025"]
    assert recipe.unisolated == ("flash-attn",)
    assert [(option.name, option.value) for option in recipe.options] == [
        ("extra-index-url", "https://download.example/cu124"),
        ("no-binary", "mpi4py"),
    ]


def test_an_override_applies_except_to_packages_of_the_base(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/pyproject.toml").touch()
    text = render_overrides(project(tmp_path, SOURCES), {"torch"})
    assert "idna==2.0\n" in text
    assert "torch" not in text.replace("pyproject.toml", "")


LOCK = f"""\
[[package]]
name = "click"
version = "8.1"
source = {{ git = "https://git.example/click?rev=v8&subdirectory=python#{COMMIT}" }}
[[package]]
name = "deep"
version = "1"
source = {{ git = "https://git.example/deep#{COMMIT}" }}
[[package]]
name = "wheel-of"
version = "1"
source = {{ url = "https://x.example/wheel_of-1-py3-none-any.whl" }}
wheels = [{{ url = "https://x.example/wheel_of-1-py3-none-any.whl", hash = "sha256:{SHA}" }}]
"""
LOCKED = """\
[project]
name = "x"
dependencies = ["click", "wheel-of"]
[tool.uv.sources]
click = { git = "https://git.example/click", rev = "v8", subdirectory = "python" }
wheel-of = { url = "https://x.example/wheel_of-1-py3-none-any.whl" }
"""


def test_a_uv_lock_holds_repositories_at_their_commit_and_files_at_their_hash(tmp_path: Path) -> None:
    recipe = project(tmp_path, LOCKED, lock=LOCK)
    assert specs(recipe) == [
        f"click @ git+https://git.example/click@{COMMIT}#subdirectory=python",
        "wheel-of @ https://x.example/wheel_of-1-py3-none-any.whl",
    ]
    assert recipe.pip[1].hashes == (f"sha256:{SHA}",)
    assert [line.spec for line in recipe.overrides] == [f"deep @ git+https://git.example/deep@{COMMIT}"]


@pytest.mark.parametrize(
    "text",
    [
        "[tool]\nuv = 3\n", "[tool.uv]\nsources = 1\nindex = 2\n", "[tool.uv]\nindex = [1]\n",
        "[tool.uv.sources]\na = 1\n",
        "[tool.uv]\noverride-dependencies = 1\n", "[dependency-groups]\na = 1\n",
        "[tool.uv.sources]\nclick = {index = 'x', marker = 'none'}\n",
    ],
)  # fmt: skip
def test_tables_of_another_shape_end_in_an_answer(tmp_path: Path, text: str) -> None:
    said = "pyproject.toml"
    try:
        project(tmp_path, f"[project]\nname = 'x'\ndependencies = ['click']\n{text}")
    except UsageError as error:
        said = f"{error} {error.evidence}"
    assert "pyproject.toml" in said


def test_a_folder_is_answered_with_the_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("pyproject.toml", "environment.yml"):
        (tmp_path / "mine" / name).touch()
    with pytest.raises(UsageError, match="mine: it is a folder") as error:
        read_recipe(["mine"], cwd=tmp_path)
    assert error.value.hint.endswith("mine/environment.yml, mine/pyproject.toml")


ONE_INDEX = """\
[project]
name = "x"
dependencies = ["torch>=2", "numpy", "links"]
[[tool.uv.index]]
name = "pytorch-rocm"
url = "https://download.example/rocm6.4"
explicit = true
[[tool.uv.index]]
name = "page"
url = "https://download.example/page"
format = "flat"
[tool.uv.sources]
torch = [{ index = "pytorch-cpu", marker = "sys_platform == 'darwin'" }, { index = "pytorch-rocm" }]
links = { index = "page" }
"""


def test_a_package_comes_from_the_index_that_its_source_names(tmp_path: Path) -> None:
    recipe = project(tmp_path, ONE_INDEX)
    rocm, page = PipIndex("https://download.example/rocm6.4"), PipIndex("https://download.example/page", flat=True)
    assert {line.name: line.index for line in recipe.pip if line.index} == {"torch": rocm, "links": page}
    assert render_requirements(recipe).splitlines()[1:] == ["numpy"]
    asked = tomllib.loads(render_project(["torch>=2", "links"], {"torch": rocm, "links": page}))
    assert asked["project"]["dependencies"] == ["torch>=2", "links"]
    assert asked["tool"]["uv"]["sources"] == {"torch": {"index": "torch"}, "links": {"index": "links"}}
    assert asked["tool"]["uv"]["index"] == [
        {"name": "links", "url": "https://download.example/page", "explicit": True, "format": "flat"},
        {"name": "torch", "url": "https://download.example/rocm6.4", "explicit": True},
    ]
    assert render_project([], {}) == ""


def row(name: str, **more: object) -> str:
    """Write an index of a folder of that name beside the project file."""
    rows = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f'[[tool.uv.index]]\nname = "{name}"\nurl = "{name}"\n{rows}'


ASKS = "[project]\nname = 'x'\ndependencies = ['mine']\n"
MINE = "[tool.uv.sources]\nmine = {index = 'own'}\n"


@pytest.mark.parametrize(
    ("text", "arguments", "own"),
    [
        (row("own", explicit=True) + MINE, "", "--index {own} --index-strategy unsafe-best-match"),
        (row("own", explicit=True, format="flat") + MINE, "", "--find-links file://{own}"),
        (row("own", explicit=True), "", ""),
        (row("own", format="flat") + MINE, "--find-links file://{own}", ""),
        (row("own", format="flat", default=True), "--no-index --find-links file://{own}", ""),
        (
            row("other") + row("own", default=True),
            "--default-index {own} --index {other} --index-strategy unsafe-best-match",
            "",
        ),
        (
            row("other") + row("own", format="flat", default=True),
            "--default-index {other} --find-links file://{own}",
            "",
        ),
    ],
)
def test_an_index_serves_the_same_packages_as_with_uv(tmp_path: Path, text: str, arguments: str, own: str) -> None:
    folders = {name: tmp_path / "its" / name for name in ("own", "other")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    (tmp_path / "its" / "pyproject.toml").write_text(ASKS + text)
    recipe = read_recipe(["its/pyproject.toml"], cwd=tmp_path)
    planned = plan_uv_settings(PipConfig(cwd="/elsewhere"), recipe)
    said = {name: f"file://{folder}" for name, folder in folders.items()}
    assert " ".join(planned.arguments) == arguments.replace("file://", "").format(**said)
    assert " ".join(planned.own) == own.replace("file://", "").format(**said)
    if "own'}" in text:
        assert [line.index and line.index.address for line in recipe.pip] == [str(folders["own"])]


LOCK_OF_NAMES = "".join(f"[[package]]\nname = '{name}'\n" for name in ("torch", "numpy", "links"))


def test_with_a_lock_every_package_may_come_from_any_index(tmp_path: Path) -> None:
    recipe = project(tmp_path, ONE_INDEX, lock=LOCK_OF_NAMES)
    assert ("extra-index-url", "https://download.example/rocm6.4") in [(x.name, x.value) for x in recipe.options]
    assert "extra-index-url https://download.example/rocm6.4" in locked_indexes(project(tmp_path, ONE_INDEX))


def test_a_flat_index_of_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder") as error:
        project(tmp_path, ASKS + row("own", format="flat", default=True))
    assert error.value.evidence == "pyproject.toml:5: own"


def test_a_source_that_names_no_index_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown index pytorch for the package torch") as error:
        project(tmp_path, ONE_INDEX.replace('index = "pytorch-rocm"', 'index = "pytorch"'))
    assert error.value.evidence == "pyproject.toml:13: pytorch"
    assert "known: pytorch-rocm, page" in error.value.hint


def test_a_locked_package_may_come_from_a_mirror(tmp_path: Path) -> None:
    assert not any(line.index for line in project(tmp_path, ONE_INDEX, lock=LOCK_OF_NAMES).pip)


def test_a_package_with_build_requirements_of_its_own_is_noted(tmp_path: Path) -> None:
    text = """\
[project]
name = "x"
dependencies = ["torch_sparse"]
[tool.uv.extra-build-dependencies]
torch-sparse = ["torch"]
earth2grid = ["torch"]
"""
    notes = [str(note) for note in project(tmp_path, text).notes if "extra-build" in note.text]
    begin = "pyproject.toml:5: the extra-build-dependencies of torch-sparse are ignored; "
    assert notes == [f"{begin}--no-build-isolation torch-sparse builds it against the installed packages"]


def test_the_note_that_code_is_not_installed_is_left_out_if_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["click"]\n')
    (folder / "requirements.txt").write_text(".\n")
    (tmp_path / "other.txt").write_text("click\n")

    def notes(*files: str) -> list[str]:
        return [note.text for note in read_recipe(files, cwd=tmp_path).notes]

    assert notes("mine/pyproject.toml", "other.txt") == [NOT_INSTALLED]
    assert notes("mine/pyproject.toml", "mine/requirements.txt") == []
    assert notes("mine/requirements.txt", str(folder / "pyproject.toml")) == []


def test_a_uv_lock_without_its_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    with pytest.raises(UsageError, match=r"there is no pyproject\.toml next to it"):
        read_recipe(["uv.lock"], cwd=tmp_path)


@pytest.mark.parametrize(("name", "hint"), [("pdm.lock", "pdm export"), ("setup.py", "write the folder")])
def test_unsupported_files_are_refused_with_the_file_to_use(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match="Argosy does not support") as error:
        read_recipe([name], cwd=tmp_path)
    assert hint in error.value.hint
