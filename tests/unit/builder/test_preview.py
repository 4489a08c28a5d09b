"""`argosy build --dry-run`: what would be done, and nothing of it done."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from functools import partial
from pathlib import Path

import pytest

from argosy.builder import resolve
from argosy.builder.bases.debian import debian_file
from argosy.builder.build import build_image
from argosy.builder.bundle import bundle_without_packages
from argosy.builder.on_node import NodeOptions
from argosy.builder.preview import preview_build, preview_on_node, render_preview
from argosy.builder.records import BuildRequest
from argosy.builder.request import NO_PATH
from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolMissing, UsageError
from argosy.core.process import FakeRunner
from argosy.core.records import replace
from argosy.core.session import PlainReporter, Session
from argosy.host.architectures import emulating
from argosy.recipes.lock import Lock, LockedBase, Tools, render_lock
from argosy.recipes.project_file import read_project
from tests.unit.machines import make_host, make_session

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make_session(tmp_path, make_host("bwrap", "unshare", cwd=str(tmp_path)))


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    recipe = tmp_path / "environment.yml"
    recipe.write_text("dependencies: [python=3.11, numpy, numpy<3, {pip: [torch==2.13.0, ./mine]}]\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/setup.py").touch()
    base = tmp_path / "base.sif"
    (tmp_path / "root").mkdir()
    (tmp_path / "root/data").write_bytes(os.urandom(3_000_000))
    words = ("mksquashfs", str(tmp_path / "root"), str(base), "-quiet", "-no-progress")
    subprocess.run(words, check=True)
    shutil.rmtree(tmp_path / "root")
    return BuildRequest((recipe,), str(base), tmp_path / "out.sif")


def test_a_dry_run_shows_base_packages_and_paths_and_starts_nothing(session: Session, request_: BuildRequest) -> None:
    before = sorted(Path(request_.base).parent.iterdir())
    preview = preview_build(request_, session)
    assert preview.base_bytes == Path(request_.base).stat().st_size
    assert preview.conda == ("python", "numpy")
    assert preview.pip[0] == "torch"
    assert len(preview.pip) == 2
    assert preview.backend.startswith("userns: ")
    assert preview.work_free > 0
    assert isinstance(session.runner, FakeRunner)
    assert session.runner.seen == []
    assert sorted(Path(request_.base).parent.iterdir()) == before


@pytest.mark.parametrize(
    ("base", "site", "how"),
    [
        ("debian:bookworm", "", "created first"),
        ("debian:zurg", "", "created first, if the suite zurg exists"),
        ("docker://ubuntu", "", "downloaded first, unless the cache has it"),
        ("tools:1", "", "3.0 MB, copied unchanged"),
        ("/appl/x.sif", "lumi-g", "not on this machine, expected at lumi-g"),
    ],
)
def test_the_preview_shows_how_the_base_is_made(
    session: Session, request_: BuildRequest, base: str, site: str, how: str
) -> None:
    catalog = session.paths.cache / "catalog"
    (catalog / "tools").mkdir(parents=True)
    Path(request_.base).rename(catalog / "tools/1.sif")
    host = replace(session.host, programs={**session.host.programs, "mmdebstrap": "/usr/bin/mmdebstrap"})
    there = replace(session, host=host, paths=replace(session.paths, images=(catalog,)))
    assert preview_build(replace(request_, base=base, site=site), there).base_how == how


def test_a_preview_without_mmdebstrap_names_the_fallback_of_the_default_base(
    session: Session, request_: BuildRequest
) -> None:
    preview = preview_build(replace(request_, base=""), session)
    assert preview.base == "debian:bookworm (the default)"
    assert preview.base_how.startswith("mmdebstrap is not installed on this machine, so the base is docker://")
    with pytest.raises(ToolMissing, match="mmdebstrap is not installed") as caught:
        preview_build(replace(request_, base="debian:bookworm"), session)
    assert "docker://python:3.11-slim-bookworm, or an image file" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "text", "programs", "said"),
    [
        ("Dockerfile", "FROM debian\n", ("podman", "docker"), "built first, with podman"),
        ("base.def", "Bootstrap: docker\nFrom: debian\n", ("apptainer",), "built first, with apptainer"),
        ("Dockerfile", "FROM debian\nRUNN true\n", ("docker",), "a Dockerfile has no 'RUNN'"),
        ("base.def", "%post\n", ("apptainer",), "is not a definition file"),
        ("Dockerfile", "FROM debian\n", (), "no engine is installed"),
    ],
)
def test_a_dry_run_reads_the_file_that_an_engine_would_build(
    session: Session, request_: BuildRequest, name: str, text: str, programs: tuple[str, ...], said: str
) -> None:
    file = request_.output.with_name(name)
    file.write_text(text)
    there = replace(
        session, host=replace(session.host, programs={**session.host.programs, **dict.fromkeys(programs, "/x")})
    )
    asked = replace(request_, base=str(file))
    try:
        told = preview_build(asked, there).base_how
    except (ToolMissing, UsageError) as error:
        told = str(error)
    assert said in told


def test_a_build_on_a_node_needs_no_engine_on_this_machine(session: Session, request_: BuildRequest) -> None:
    file = request_.output.with_name("Dockerfile")
    file.write_text("FROM debian\n")
    request = replace(request_, site="alps-daint", base=str(file))
    preview = preview_on_node(request, NodeOptions(account="g1", time="5"), session)
    assert preview.base_how == "built first, with the engine of that machine"


def test_a_cached_debian_base_is_shown_with_its_size(session: Session, request_: BuildRequest) -> None:
    file = debian_file("debian:bookworm", session, ())
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\0" * 2_000_000)
    preview = preview_build(replace(request_, base="debian:bookworm"), session)
    assert (preview.base_bytes, preview.base_how) == (2_000_000, "2.0 MB, in the cache")


@pytest.mark.parametrize(
    ("base", "meant"),
    [
        ("bas.sif", "did you mean base.sif?"),
        ("nvcr.io/nvidia/pytorch:25.10-py3", "did you mean docker://nvcr.io/nvidia/pytorch:25.10-py3?"),
        ("ubuntu:22.04", "for an image of Docker Hub, write docker://ubuntu:22.04"),
        ("x", "check the path"),
    ],
)
def test_a_dry_run_suggests_the_nearest_name_for_an_unknown_base(
    session: Session, request_: BuildRequest, base: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(request_.base).parent)
    with pytest.raises(UsageError, match="there is no base") as caught:
        preview_build(replace(request_, base=base), session)
    assert meant in caught.value.hint


def test_a_preview_reads_as_a_table(session: Session, request_: BuildRequest) -> None:
    preview = preview_build(request_, session)
    text = render_preview(replace(preview, node=("--time=5", "--comment=a b")))
    assert "base.sif: 3.0 MB, copied unchanged" in text
    assert "2 from conda, 2 from pip, the build chooses versions" in text
    assert "\ndisk         3.0 MB for the base, more for the packed packages; " in text
    assert text.endswith("on a node    --time=5 '--comment=a b'")


UV_LOCK = """version = 1
[[package]]
name = "mine"
source = { virtual = "." }
dependencies = [{ name = "tqdm" }]
[[package]]
name = "tqdm"
version = "4.67.1"
source = { registry = "https://pypi.org/simple" }
sdist = { hash = "sha256:%s" }
"""
CHOOSES = "the build chooses versions"


@pytest.mark.parametrize(
    ("files", "how"),
    [
        (("uv.lock",), "as locked by uv.lock"),
        (("uv.lock", "tqdm.txt"), "as locked by uv.lock"),
        (("uv.lock", "click.txt"), CHOOSES),
        (("tqdm.txt",), CHOOSES),
        (("pinned.txt",), "pinned by pinned.txt, other dependencies as the build chooses"),
        (("pinned.txt", "held.txt"), "pinned by pinned.txt and limits.txt, other dependencies as the build chooses"),
        (("pinned.txt", "tqdm.txt"), CHOOSES),
        (("pinned.txt", "env.yml"), CHOOSES),
        (("hashed.txt",), "as locked by hashed.txt"),
        (("star.txt",), CHOOSES),
        (("folder.txt",), CHOOSES),
    ],
)
def test_the_preview_says_where_versions_come_from(
    session: Session, request_: BuildRequest, tmp_path: Path, files: tuple[str, ...], how: str
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\ndependencies = ["tqdm"]\n')
    (tmp_path / "uv.lock").write_text(UV_LOCK % ("0" * 64))
    for name, text in {
        "tqdm.txt": "tqdm>=4\n",
        "click.txt": "click\n",
        "pinned.txt": f"numpy==2.1.0\n./mine\nx @ git+https://example.org/x.git@{'a' * 40}\n",
        "held.txt": "-c limits.txt\nsix\n",
        "limits.txt": "six==1.17.0\nattrs==1\n",
        "hashed.txt": f"six==1.17.0 --hash=sha256:{'0' * 64}\n",
        "star.txt": "numpy==2.*\n",
        "folder.txt": "./mine\n",
        "env.yml": "dependencies: [zlib]\n",
    }.items():
        (tmp_path / name).write_text(text)
    preview = preview_build(replace(request_, sources=tuple(tmp_path / name for name in files)), session)
    assert f", {how}: " in render_preview(preview)
    assert preview.locked == how.startswith("as locked")


@pytest.mark.parametrize(
    ("python", "base", "fits"),
    [(">=3.12", "debian:bookworm", False), (">=3.12", "debian:trixie", True), (">=3.12", "debian:sid", True)],
)
def test_a_dry_run_refuses_the_python_of_a_debian_as_the_build_does(
    session: Session, request_: BuildRequest, tmp_path: Path, python: str, base: str, *, fits: bool
) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(f'[project]\nname = "mine"\nversion = "1"\nrequires-python = "{python}"\n')
    there = replace(session, host=replace(session.host, programs={**session.host.programs, "mmdebstrap": "/x"}))
    request = replace(request_, sources=(project,), base=base)
    if fits:
        assert preview_build(request, there).base_how == "created first"
        return
    with pytest.raises(CheckFailed, match=r"requires Python >=3.12, the base has 3.11.2") as refused:
        preview_build(request, there)
    assert "--base debian:trixie" in refused.value.hint
    # conda installs the Python of an environment file if the base has another one.
    (tmp_path / "environment.yml").write_text("dependencies: ['python>=3.12', {pip: [six]}]\n")
    by_conda = replace(request, sources=(tmp_path / "environment.yml",))
    assert "otherwise from conda" in preview_build(by_conda, there).notes[-1]


def test_long_package_lists_are_shortened_and_empty_ones_noted(session: Session, request_: BuildRequest) -> None:
    recipe = request_.sources[0]
    recipe.write_text(f"dependencies: [{{pip: [{', '.join(f'p{number}' for number in range(10_000))}]}}]\n")
    assert render_preview(preview_build(request_, session)).splitlines()[2].endswith("p38, p39 and 9960 more")
    recipe.write_text("dependencies: []\n")
    text = render_preview(preview_build(request_, session))
    assert "note         the files request no package" in text
    assert "\npackages     none\n" in text


def test_an_output_that_is_there_is_refused_in_a_dry_run_too(session: Session, request_: BuildRequest) -> None:
    request_.output.touch()
    with pytest.raises(UsageError, match="already exists"):
        preview_build(request_, session)


def test_a_dry_run_needs_no_output_but_a_build_does(session: Session, request_: BuildRequest) -> None:
    unnamed = replace(request_, output=NO_PATH)
    preview = preview_build(unnamed, session)
    assert preview.output == ""
    assert render_preview(preview).startswith("would build  an image without a name; -o FILE gives one (sif)\n")
    with pytest.raises(UsageError, match="no output is given"):
        build_image(unnamed, session)


@pytest.mark.parametrize(
    ("site", "index", "why"),
    [
        ("lumi-g", "rocm7.0", "the driver of lumi-g supports ROCm 7.0"),
        ("mn5-acc", "cu128", "the driver of mn5-acc supports CUDA 12.2, and therefore every build for CUDA 12"),
        ("dawn", "xpu", "dawn has GPUs of intel [site]"),
        ("lumi-c", "cpu", "lumi-c has no GPUs"),
    ],
)
def test_a_dry_run_for_a_site_shows_the_index_of_torch_and_the_reason(
    session: Session, request_: BuildRequest, site: str, index: str, why: str
) -> None:
    lines = render_preview(preview_build(replace(request_, site=site), session)).splitlines()
    (torch,) = [line for line in lines if line.startswith("torch ")]
    assert torch.startswith(f"torch        from https://download.pytorch.org/whl/{index}: {why}")


def test_a_dry_run_names_the_machines_that_condas_packages_are_for(session: Session, request_: BuildRequest) -> None:
    text = render_preview(preview_build(replace(request_, site="mn5-acc"), session))
    assert "conda        for CUDA 12.2: the driver of mn5-acc supports it; use --cuda to change it\n" in text
    assert "conda        for processors of type sapphirerapids, according to the site's profile\n" in text
    assert "torch " not in render_preview(preview_build(request_, session)).split("\nbackend")[1]


def test_a_dry_run_refuses_a_site_of_other_machines_as_a_build_does(
    session: Session, request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "emulating", partial(emulating, folder=tmp_path / "nothing-registered"))
    with pytest.raises(CheckFailed, match="alps-daint is aarch64: cannot run programs for aarch64 on this machine"):
        preview_build(replace(request_, site="alps-daint"), session)


def test_a_build_on_a_node_of_other_machines_can_be_planned_here(session: Session, request_: BuildRequest) -> None:
    preview = preview_on_node(replace(request_, site="alps-daint"), NodeOptions(account="g1", time="5"), session)
    assert {"--account=g1", "--time=5"} < set(preview.node)
    assert "work files   the unpacked packages, in TMPDIR or the cache on the node\n" in render_preview(preview)


def test_a_preview_for_nodes_without_a_network_shows_the_steps_before(session: Session, request_: BuildRequest) -> None:
    profile = request_.output.with_name("far.toml")
    profile.write_text(
        'name = "far"\ntitle = "Far"\nscheduler = "slurm"\nchecked = "2026-11-20"\n[build]\nnetwork = false\n'
    )
    preview = preview_on_node(replace(request_, site=str(profile)), NodeOptions(), session)
    assert preview.notes[0] == "the nodes have no network; this machine downloads the base and the packages first"


def test_a_dry_run_notes_that_a_configured_index_precedes_the_sites(session: Session, request_: BuildRequest) -> None:
    variables = {"PIP_INDEX_URL": "https://mirror.example/simple"}
    session = replace(session, host=replace(session.host, environment=variables))
    torch = preview_build(replace(request_, site="lumi-g"), session).torch
    assert torch.startswith("the index in the requirements or in pip's configuration; use --torch-backend rocm7.0 for")
    asked = preview_build(replace(request_, site="lumi-g", torch_backend="rocm6.4"), session).torch
    assert asked.startswith("https://download.pytorch.org/whl/rocm6.4: requested [option]")


def test_a_lock_of_another_tool_is_shown_as_locked(session: Session, request_: BuildRequest) -> None:
    lock = Path(request_.base).with_name("requirements.txt")
    lock.write_text(f"six==1.16.0 --hash=sha256:{'a' * 64}\n")
    asked = replace(request_, sources=(lock,))
    assert preview_build(asked, session).locked
    lock.write_text("six==1.16.0\n")
    assert not preview_build(asked, session).locked


def test_a_preview_shows_where_python_comes_from(session: Session, request_: BuildRequest) -> None:
    recipe = request_.sources[0]
    said = "Python 3.11 comes from the base if it has that version; otherwise from conda"
    assert said not in preview_build(request_, session).notes
    recipe.write_text("dependencies: [python=3.11, {pip: [six]}]\n")
    assert said in preview_build(request_, session).notes


def test_a_file_that_is_not_an_image_is_refused_before_the_build(session: Session, request_: BuildRequest) -> None:
    Path(request_.base).write_text("no image\n")
    with pytest.raises(ImageError, match="is not an image that can be run"):
        preview_build(request_, session)


def test_a_preview_lists_the_stages_and_steps_of_the_project_file(
    session: Session, request_: BuildRequest, tmp_path: Path
) -> None:
    file = tmp_path / "argosy.toml"
    file.write_text(
        '[[stage]]\nname = "tools"\nbase = "debian:bookworm"\nrun = ["make", "make install"]\n'
        'results = { "x" = "/usr/local/bin/x" }\n[[step]]\nrun = "ldconfig"\n'
        '[[step]]\ncopy = "argosy.toml"\nto = "/opt/"\nbefore = "packages"\n'
    )
    preview = preview_build(replace(request_, project=read_project(file)), session)
    assert preview.steps == (
        "stage tools over debian:bookworm: make (and 1 more)",
        "before the packages: copy argosy.toml to /opt/",
        "after the packages: run ldconfig",
    )
    assert "step         after the packages: run ldconfig" in render_preview(preview)


def test_a_dry_run_over_an_argosy_image_refuses_another_python(
    session: Session, request_: BuildRequest, tmp_path: Path
) -> None:
    lock = Lock(LockedBase("debian:bookworm", DIGEST, 1, "amd64"), Tools("1"), 0, DIGEST, python="3.11.2")
    file = tmp_path / "image/opt/argosy/argosy.lock"
    file.parent.mkdir(parents=True)
    (tmp_path / "image/usr/bin").mkdir(parents=True)
    file.write_text(render_lock(lock))
    request = replace(request_, base=str(tmp_path / "image"))
    request.sources[0].write_text("dependencies: [python=3.11, {pip: [einops]}]\n")
    assert preview_build(request, session).pip == ("einops",)
    request.sources[0].write_text("dependencies: [python=3.13.1, {pip: [einops]}]\n")
    with pytest.raises(CheckFailed, match=r"requires Python 3\.13\.1, the base has 3\.11\.2") as refused:
        preview_build(request, session)
    assert "--base debian:bookworm" in refused.value.hint


def test_a_dry_run_of_a_bundle_reads_its_lock_and_the_size_of_its_base(session: Session, tmp_path: Path) -> None:
    lock = Lock(base=LockedBase("docker://x/y", DIGEST, 1, "amd64"), tools=Tools("1"), time=0, content=DIGEST)
    (tmp_path / "argosy.lock").write_text(render_lock(lock))
    (tmp_path / "base").write_bytes(bytes(5_000))
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for name in ("argosy.lock", "base"):
            archive.add(tmp_path / name, name)
    request = BuildRequest((), "", tmp_path / "out.sif")
    with bundle_without_packages(tmp_path / "all.tar", request, session) as seen:
        preview = preview_build(seen, session)
    assert (preview.base, preview.base_bytes, preview.locked) == ("docker://x/y", 5_000, True)
    assert preview.base_how.endswith("from the bundle")
    with (
        pytest.raises(ImageError, match="is not an Argosy bundle"),
        bundle_without_packages(tmp_path / "base", request, session),
    ):
        pass


def test_a_build_that_fails_shows_the_notes_on_its_files(tmp_path: Path, session: Session) -> None:
    """A folder of wheels that does not exist, for example, explains why a package is missing."""
    (tmp_path / "r.txt").write_text("--find-links ./wheelsno\n--no-index\neinops\n")
    stream = io.StringIO()
    request = BuildRequest((tmp_path / "r.txt",), str(tmp_path / "none.sif"), tmp_path / "x.sif")
    with pytest.raises(ArgosyError, match=r"none\.sif"):
        build_image(request, replace(session, reporter=PlainReporter(stream)))
    assert stream.getvalue().count(f"{tmp_path}/r.txt:1: --find-links ./wheelsno is ignored: no such folder\n") == 1
