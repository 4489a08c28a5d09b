"""Names of images in messages, and the mounts of a container on this machine."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest

from argosy.core.errors import ImageError
from argosy.core.layout import DEFAULT_PATH
from argosy.core.model import Bind, ContainerRequest, Image, ImageKind
from argosy.core.records import replace
from argosy.core.session import PlainReporter
from argosy.core.shell import ShellHelper
from argosy.images.part_digest import describe_spans
from argosy.runtimes.container_plan import ContainerPlan, parse_container, plan_container
from argosy.runtimes.open_container import name_of_image, open_container, plan_entry
from argosy.runtimes.runtime import SCRIPTS
from argosy.sites.profile_parts import SiteBase
from argosy.sites.read import read_site
from tests.unit.machines import make_host, real_session

SITE = read_site("local")
MKSQUASHFS = shutil.which("mksquashfs") or ""
IMAGE = Image("/site/torch.sif", ImageKind.SIF, "", "amd64")


def test_an_image_is_named_by_the_file_or_prefix_that_the_user_knows(tmp_path: Path) -> None:
    linked, built = tmp_path / "q/versions/1/image.sif", tmp_path / "own/versions/2/image.sif"
    for file in (linked, built):
        file.parent.mkdir(parents=True)
    (tmp_path / "hello.sif").write_text("")
    built.write_text("")
    linked.symlink_to(tmp_path / "hello.sif")
    assert name_of_image(linked) == "hello.sif"
    assert name_of_image(built) == "own"
    assert name_of_image(tmp_path / "hello.sif") == "hello.sif"


@pytest.mark.parametrize(("home", "mounted"), [("/nonexistent", False), ("/dev/null", False), ("/usr", True)])
def test_a_home_that_is_no_folder_is_not_mounted(tmp_path: Path, home: str, mounted: bool) -> None:  # noqa: FBT001
    real = real_session(tmp_path)
    host = replace(real.host, person=replace(real.host.person, home=home), programs={"bwrap": "/usr/bin/bwrap"})
    tree = tmp_path / "image"
    for name in ("bin", "etc", "usr", "proc"):
        (tree / name).mkdir(parents=True)
    plan = open_container(ContainerRequest(runtime="bwrap"), str(tree), replace(real, host=host), dry=True)
    assert (Bind(home, home) in plan.entry.binds) is mounted
    assert "/dev/null" not in plan.runtime.argv(plan.entry, ("true",))


@pytest.mark.skipif(not MKSQUASHFS, reason="needs mksquashfs")
def test_an_image_that_is_removed_while_a_container_starts_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin", "etc", "usr", "proc"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    image = tmp_path / "image.sqsh"
    subprocess.run((MKSQUASHFS, tmp_path / "tree", image, "-quiet"), check=True, stdout=subprocess.DEVNULL)

    def removed(*facts: object) -> object:
        image.unlink()
        return describe_spans(*facts)  # type: ignore[arg-type]

    monkeypatch.setattr("argosy.runtimes.open_container.describe_spans", removed)
    real = real_session(tmp_path)
    session = replace(real, host=replace(real.host, programs={"bwrap": "/usr/bin/bwrap"}))
    with pytest.raises(ImageError, match=f"{image} was removed or replaced meanwhile"):
        open_container(ContainerRequest(runtime="bwrap"), str(image), session, dry=True)


def test_a_job_gets_the_version_to_which_an_alias_points(tmp_path: Path) -> None:
    real = real_session(tmp_path)
    host = replace(real.host, programs={"bwrap": "/usr/bin/bwrap"})
    for name in ("bin", "etc", "usr", "proc"):
        (tmp_path / "images/tools/1.sif" / name).mkdir(parents=True)
    (tmp_path / "images/tools/stable.sif").symlink_to("1.sif")
    noted = io.StringIO()
    paths = replace(real.paths, images=(tmp_path / "images",))
    session = replace(real, host=host, paths=paths, reporter=PlainReporter(stream=noted))
    request = ContainerRequest(runtime="bwrap")
    plans = [
        open_container(request, "tools/stable.sif", session, dry=True, for_job=for_job) for for_job in (True, False)
    ]
    assert [Path(each.entry.image.path).name for each in plans] == ["1.sif", "stable.sif"]
    assert noted.getvalue() == "tools/stable.sif is tools/1.sif\n"


def plan(
    image: Image, mode: str, *, asked: str = "", reference: str = "", name: str = "/site/torch.sif"
) -> ContainerPlan:
    request = ContainerRequest(runtime="podman" if image.kind is ImageKind.REGISTRY else "apptainer", enter=asked)
    base = SiteBase(name=name, enter=mode, why="", source="https://site.example", checked="2026-01-01")  # type: ignore[arg-type]
    site = replace(SITE, images=replace(SITE.images, bases=(base,)))
    planned = plan_container(request, image, make_host("apptainer", "podman"))
    return plan_entry(planned, request, reference or image.path, lambda: (site,))


def entered(planned: ContainerPlan) -> tuple[str, str]:
    """Return the shell and the helper before the command, and check that the command follows them."""
    argv = planned.argv(("python", "x"))
    assert argv[-2:] == ("python", "x")
    shell, _, helper, name = argv[-6:-2]
    assert isinstance(helper, ShellHelper)
    return str(shell), str(name)


@pytest.mark.parametrize(
    ("mode", "expected"), [("run", ("/bin/sh", "with_runscript")), ("with-conda", ("/bin/bash", "with_conda"))]
)
def test_the_sites_profile_decides_how_its_image_is_entered(mode: str, expected: tuple[str, str]) -> None:
    planned = plan(IMAGE, mode)
    assert entered(planned) == expected
    choice = planned.choices[-1]
    assert (choice.label, choice.value, choice.source) == ("enter", mode, "site local")


@pytest.mark.parametrize("argosy", [False, True])
def test_the_start_script_is_the_program_if_there_is_no_command(argosy: bool) -> None:  # noqa: FBT001 - a case
    argv = plan(replace(IMAGE, argosy=argosy), "exec", asked="run").argv(())
    names = ("with_layer", IMAGE.path, "with_runscript") if argosy else ("with_runscript",)
    assert argv[-len(names) :] == names


def test_an_option_overrules_the_profile() -> None:
    assert entered(plan(IMAGE, "run", asked="with-conda")) == ("/bin/bash", "with_conda")
    assert plan(IMAGE, "run", asked="exec").argv(("python",))[-2:] == ("/site/torch.sif", "python")
    assert entered(plan(IMAGE, "run", asked="run", name="/other.sif")) == ("/bin/sh", "with_runscript")


@pytest.mark.parametrize(
    ("image", "reference", "name"),
    [
        (IMAGE, "", "/other.sif"),
        (replace(IMAGE, argosy=True), "", "/site/torch.sif"),
    ],
)
def test_other_images_start_as_before(image: Image, reference: str, name: str) -> None:
    assert plan(image, "run", reference=reference, name=name).entry.image.enter == ""


def test_a_pattern_of_the_profile_says_how_its_images_are_entered() -> None:
    site = replace(SITE, images=replace(SITE.images, enter={"/site/lumi-pytorch-*.sif": "with-conda"}))
    request = ContainerRequest(runtime="apptainer")
    for name, mode in (("lumi-pytorch-2.6.sif", "with-conda"), ("lumi-rocm-6.2.sif", "")):
        image = replace(IMAGE, path=f"/site/{name}")
        planned = plan_container(request, image, make_host("apptainer"))
        assert plan_entry(planned, request, image.path, lambda: (site,)).entry.image.enter == mode


def test_a_link_of_the_site_is_its_image(tmp_path: Path) -> None:
    (tmp_path / "v2.sif").touch()
    (tmp_path / "latest.sif").symlink_to("v2.sif")
    image = replace(IMAGE, path=str(tmp_path / "v2.sif"))
    assert entered(plan(image, "run", name=str(tmp_path / "latest.sif"))) == ("/bin/sh", "with_runscript")
    fetched = replace(IMAGE, path="/cache/1.sif")
    assert entered(plan(fetched, "run", reference="docker://a/b:1", name="docker://a/b:1"))[1] == "with_runscript"


def test_a_runtime_that_pulls_the_image_runs_no_start_script() -> None:
    planned = plan(Image("a/b:1", ImageKind.REGISTRY, "", ""), "run", reference="docker://a/b:1", name="docker://a/b:1")
    assert planned.entry.image.enter == ""
    choice = planned.choices[-1]
    assert (choice.value, choice.why) == ("exec", "podman starts programs without the image's start script")


def test_the_option_reaches_the_request() -> None:
    assert parse_container({"enter": "run"}, {}).enter == "run"


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("10-docker2singularity.sh", "/image/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin"),
        ("10-vendor.sh", "/image/bin:/bin"),
    ],
)
def test_the_usual_folders_end_a_search_path_that_an_image_of_docker_sets_without_them(
    script: str, path: str, tmp_path: Path
) -> None:
    (tmp_path / script).write_text("export PATH=/image/bin:/bin\n")
    text = (SCRIPTS / "enter_image.sh").read_text().replace("/.singularity.d/env", str(tmp_path))
    words = ["/bin/sh", "-c", text.replace("@DEFAULT_PATH@", DEFAULT_PATH), "sh", "", "0", "/usr/bin/env"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"PATH={path}" in said.splitlines()
    assert "argosy_" not in said
