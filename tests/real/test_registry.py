"""Images out of a real registry (Debian's docker-registry on the loopback) and out of archives, made here by umoci."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from argosy.builder.bases.base import open_base
from argosy.core.errors import ArgosyError, ImageError, ToolFailed, ToolMissing, UsageError
from argosy.core.model import ImageKind
from argosy.core.process import Command, OnLine, RealRunner, Reply
from argosy.core.records import replace
from argosy.core.session import PlainReporter, Session, paths_from
from argosy.host.architectures import go_arch
from argosy.host.probe import probe_host
from argosy.images.find import fetch_or_find_image
from argosy.images.open import inspect_squashfs, open_image
from argosy.images.registry.fetch import fetch_image
from argosy.images.registry.references import parse_reference
from argosy.images.sif.read import verify_sif
from argosy.runtimes.run import RunRequest, prepare_run
from tests.real.indexes import serve_busy
from tests.real.registry import PASSWORD, Registry, do, running

pytestmark = pytest.mark.real

BUSYBOX = "/bin/busybox"
NEEDED = ("docker-registry", "skopeo", "umoci", "mksquashfs", "unsquashfs")
ARCH = go_arch(platform.machine())
VARIABLE = "a $HOME `id` \"b\" 'c' d"


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    missing += [] if Path(BUSYBOX).exists() else ["busybox"]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("open") / "registry") as it:
        yield it


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an OCI layout with one image `one`: layers that add, remove, replace, and own files."""
    folder = tmp_path_factory.mktemp("layout")
    image = f"{folder}/it:one"
    first, second = folder / "first", folder / "second"
    for name in ("bin", "etc", "srv/old", "private"):
        (first / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, first / "bin/busybox")
    for name in ("sh", "ls", "cat", "env", "id"):
        (first / "bin" / name).symlink_to("busybox")
    (first / "etc/gone").write_text("x")
    (first / "etc/stays").write_text("first")
    (first / "srv/old/file").write_text("x")
    (first / "private/key").write_text("x")
    (first / "private/key").chmod(0)
    os.utime(first / "etc/stays", (STAYS, STAYS))
    second.mkdir()
    (second / "new").write_text("n")
    do("umoci", "init", "--layout", folder / "it")
    do("umoci", "new", "--image", image)
    for name in ("bin", "etc", "srv", "private"):
        do("umoci", "insert", "--rootless", "--image", image, first / name, f"/{name}")
    do("umoci", "insert", "--image", image, "--whiteout", "/etc/gone")
    do("umoci", "insert", "--rootless", "--image", image, "--opaque", second, "/srv")
    words = ["--config.env=PATH=/image/bin:/bin", f"--config.env=X={VARIABLE}", "--config.env=LANG=C.UTF-8"]
    words += ["--config.entrypoint=/bin/ls", "--config.cmd=-a", "--config.cmd=/srv", "--config.label=of=it"]
    do("umoci", "config", "--image", image, *words, "--architecture", ARCH)
    return folder / "it"


@dataclass
class Recorder:
    """A runner that starts programs for real, and remembers which."""

    real: RealRunner = field(default_factory=RealRunner)
    seen: list[str] = field(default_factory=list)

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run it and remember its name, for skopeo with what it does."""
        verb = next((word for word in command.argv if word in {"inspect", "copy"}), "")
        self.seen.append(f"{Path(command.argv[0]).name} {verb}".strip())
        return self.real.run(command, on_line)

    def run_foreground(self, command: Command, on_stderr: Callable[[bytes], None] | None = None) -> int:
        """Hand the terminal over."""
        return self.real.run_foreground(command, on_stderr)

    def exec_command(self, command: Command) -> int:
        """Stay: a test goes on."""
        return self.real.run_foreground(command)


class Stage(msgspec.Struct, frozen=True):
    """A session of its own, with what it did and said."""

    session: Session
    runner: Recorder
    said: StringIO

    def find(self, reference: str | Path) -> Path:
        """Find an image as `argosy run` does."""
        return fetch_or_find_image(str(reference), self.session)

    def failure(self, reference: str | Path) -> ArgosyError:
        """Give the error of an image that cannot be had; nothing half-made is left of it."""
        with pytest.raises(ArgosyError) as caught:
            self.find(reference)
        assert not list((self.session.paths.cache).glob("fetched/*"))
        assert not list((self.session.work_parent()).glob("*"))
        return caught.value

    def without(self, *programs: str) -> Stage:
        """Give the stage without some programs."""
        kept = {name: path for name, path in self.session.host.programs.items() if name not in programs}
        return self.changed(programs=kept)

    def changed(self, **facts: Any) -> Stage:
        """Give the stage on a machine that differs."""
        return replace(self, session=replace(self.session, host=replace(self.session.host, **facts)))


STAYS = 1_600_000_000
"""Time of a file: 2020-09-13."""

MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> MakeStage:
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))

    def make(name: str = "one", insecure: str = registry.address) -> Stage:
        monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path / name))
        monkeypatch.setenv("ARGOSY_INSECURE_REGISTRIES", insecure)
        host = probe_host()
        runner, said = Recorder(), StringIO()
        paths = paths_from(dict(host.environment), tmp_path)
        return Stage(Session(host, runner, paths, PlainReporter(said), str(tmp_path / f"{name}-work")), runner, said)

    return make


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    return make_stage()


@pytest.fixture(scope="module")
def one(registry: Registry, layout: Path) -> str:
    """Give the reference of the image `one` in the registry."""
    return registry.push(f"oci:{layout}:one", "it/one:1")


def contents(image: Path) -> dict[str, str]:
    """Give mode and owner of each path in an image's root file system."""
    offset = open_image(image).image.base_offset
    lines = do("unsquashfs", "-o", str(offset), "-lln", image).splitlines()
    rows = [line.split(None, 5) for line in lines if "squashfs-root" in line]
    return {row[5].partition(" -> ")[0].removeprefix("squashfs-root"): f"{row[0]} {row[1]}" for row in rows}


def times(image: Path) -> dict[str, str]:
    """Give the day of each path in an image's root file system."""
    offset = open_image(image).image.base_offset
    lines = do("unsquashfs", "-UTC", "-o", str(offset), "-lln", image).splitlines()
    rows = [line.split(None, 5) for line in lines if "squashfs-root" in line]
    return {row[5].partition(" -> ")[0].removeprefix("squashfs-root"): row[3] for row in rows}


def text_in(image: Path, path: str) -> str:
    return do("unsquashfs", "-o", str(open_image(image).image.base_offset), "-cat", image, path)


def check_content(image: Path) -> None:
    """See that an image is what the layers make: removed, hidden and added files, modes, scripts."""
    verify_sif(image)
    there = contents(image)
    assert "/etc/gone" not in there
    assert text_in(image, "etc/stays") == "first"
    assert times(image)["/etc/stays"] == "2020-09-13"
    assert [name for name in there if name.startswith("/srv")] == ["/srv", "/srv/new"]
    assert there["/bin/sh"].startswith("l")
    assert there["/var/tmp"].startswith("drwxrwxrwt")  # noqa: S108 - inside
    script = text_in(image, ".singularity.d/env/10-docker2singularity.sh")
    shown = do("/bin/sh", "-c", f'{script}\nprintf "%s|%s|%s" "$PATH" "$X" "$LANG"', env={"LANG": "C"})
    assert shown == f"/image/bin:/bin|{VARIABLE}|C"


def test_an_image_comes_out_of_a_registry_with_its_content(stage: Stage, one: str) -> None:
    image = stage.find(one)
    check_content(image)
    opened = open_image(image)
    assert (opened.image.kind, opened.image.arch, opened.image.argosy) == (ImageKind.SIF, ARCH, False)
    assert re.search(rf"^fetch +{re.escape(one)} [0-9.]+ [kM]B \(", stage.said.getvalue(), re.MULTILINE)
    assert not list(stage.session.work_parent().glob("*"))


def test_root_keeps_owners_and_others_become_root(make_stage: MakeStage, layout: Path) -> None:
    root, user = make_stage("root"), make_stage("user").changed(can_mount=False)
    if not root.session.host.can_mount:
        pytest.skip("owners are kept by root only")
    image = f"{layout}:owned"
    do("umoci", "tag", "--image", f"{layout}:one", "owned")
    owned = layout.parent / "owned"
    owned.write_text("x")
    os.chown(owned, 33, 34)
    do("umoci", "insert", "--image", image, owned, "/etc/owned")
    assert contents(root.find(f"oci:{image}"))["/etc/owned"] == "-rw-r--r-- 33/34"
    mine = user.find(f"oci:{image}")
    assert contents(mine)["/etc/owned"] == "-rw-r--r-- 0/0"
    assert contents(mine)["/private/key"].startswith("-r--------")
    check_content(mine)


def test_a_command_runs_in_it(stage: Stage, one: str) -> None:
    _, command = prepare_run(RunRequest(one, ("/bin/sh", "-c", 'echo "$PATH|$X"')), stage.session)
    reply = stage.runner.run(command)
    assert reply.code == 0, reply.stderr
    path, _, value = reply.stdout.rstrip("\n").partition("|")
    assert path.startswith("/image/bin:/bin")
    assert value == VARIABLE


def test_a_tag_is_asked_again_and_fetched_once(stage: Stage, one: str) -> None:
    first = stage.find(one)
    stage.runner.seen.clear()
    assert stage.find(one) == first
    assert stage.runner.seen == ["skopeo inspect"]


def test_a_moved_tag_is_noticed(stage: Stage, registry: Registry, layout: Path) -> None:
    image = f"{layout}:moving"
    do("umoci", "tag", "--image", f"{layout}:one", "moving")
    reference = registry.push(f"oci:{image}", "it/moving:1")
    before = stage.find(reference)
    do("umoci", "config", "--image", image, "--config.env=NEW=1")
    registry.push(f"oci:{image}", "it/moving:1")
    after = stage.find(reference)
    assert before != after
    assert "export NEW=1" in text_in(after, ".singularity.d/env/10-docker2singularity.sh")


def test_a_pinned_image_is_found_in_the_cache_without_a_network(
    make_stage: MakeStage, layout: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "gone") as registry:
        stage = make_stage("pinned", registry.address)
        name = registry.push(f"oci:{layout}:one", "it/one:1")
        fetched = fetch_image(parse_reference(name), stage.session)
        assert fetched.reference.startswith(f"{name}@sha256:")
        assert fetch_image(parse_reference(fetched.reference), stage.session).path == fetched.path
    stage.runner.seen.clear()
    assert stage.find(fetched.reference) == fetched.path
    assert stage.runner.seen == []


def test_without_a_network_a_tag_means_its_last_digest_with_a_note(
    make_stage: MakeStage, layout: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "gone") as registry:
        stage = make_stage("offline", registry.address)
        reference = registry.push(f"oci:{layout}:one", "it/one:1")
        image = stage.find(reference)
    assert stage.find(reference) == image
    assert f"{registry.address} does not answer; using {reference} from the cache" in stage.said.getvalue()


def test_equal_content_is_one_image_and_equal_bytes(make_stage: MakeStage, one: str, layout: Path) -> None:
    first, second = make_stage("first"), make_stage("second")
    image = first.find(one)
    first.runner.seen.clear()
    assert first.find(f"oci:{layout}:one") == image
    assert "skopeo copy" not in first.runner.seen
    other = second.find(f"oci:{layout}:one")
    assert other != image
    assert other.read_bytes() == image.read_bytes()


@pytest.mark.parametrize("transport", ["docker-archive", "oci-archive"])
def test_archives_are_images_by_path_and_by_reference(
    stage: Stage, layout: Path, tmp_path: Path, transport: str
) -> None:
    archive = tmp_path / "saved.tar"
    do("skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout}:one", f"{transport}:{archive}:it:1")
    image = stage.find(archive)
    check_content(image)
    stage.runner.seen.clear()
    assert stage.find(archive) == image
    assert stage.runner.seen == []
    assert stage.find(f"{transport}:{archive}") == image


def test_a_colon_in_a_file_name_does_not_begin_a_tag(stage: Stage, layout: Path, tmp_path: Path) -> None:
    archive = tmp_path / "saved:it 1.tar"
    do("skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout}:one", f"docker-archive:{tmp_path}/x.tar:it:1")
    (tmp_path / "x.tar").rename(archive)
    check_content(stage.find(archive))


def test_a_layout_with_several_images_wants_a_name(stage: Stage, layout: Path) -> None:
    do("umoci", "tag", "--image", f"{layout}:one", "two")
    error = stage.failure(layout)
    assert isinstance(error, ImageError)
    assert error.hint == f"name one of the images in it: oci:{layout}:NAME"


def test_a_broken_archive_is_an_image_error(stage: Stage, layout: Path, tmp_path: Path) -> None:
    archive = tmp_path / "saved.tar"
    do("skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout}:one", f"oci-archive:{archive}:it")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    assert isinstance(stage.failure(archive), ImageError)


def test_zstd_layers_are_unpacked_too(stage: Stage, layout: Path, tmp_path: Path) -> None:
    copy = ("skopeo", "--insecure-policy", "copy", "-q")
    do(*copy, "--dest-compress", "--dest-compress-format", "zstd", f"oci:{layout}:one", f"dir:{tmp_path}/zstd")
    do(*copy, f"dir:{tmp_path}/zstd", f"oci:{tmp_path}/layout:one")
    assert "tar+zstd" in do("skopeo", "inspect", "--raw", f"oci:{tmp_path}/layout:one")
    check_content(stage.find(tmp_path / "layout"))


def test_an_unknown_name_and_an_unknown_tag_are_usage_errors(stage: Stage, registry: Registry, one: str) -> None:
    for reference in (f"docker://{registry.address}/it/none", f"{one}-not"):
        error = stage.failure(reference)
        assert isinstance(error, UsageError)
        assert "the registry has no image" in error.what
        assert "manifest unknown" in error.evidence


def test_a_locked_registry_wants_a_login_and_takes_the_usual_one(
    make_stage: MakeStage, layout: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "locked", locked=True) as registry:
        stage = make_stage("locked", registry.address)
        reference = registry.push(f"oci:{layout}:one", "it/one:1")
        for login in ("", "me:wrong", f"you:{PASSWORD}"):
            write_login(tmp_path / "auth.json", registry, login)
            error = stage.failure(reference)
            assert isinstance(error, ToolFailed)
            assert f"skopeo login {registry.address}" in error.hint
            assert PASSWORD not in str(error)
            assert "wrong" not in str(error)
        write_login(tmp_path / "auth.json", registry, f"me:{PASSWORD}")
        check_content(stage.find(reference))


def write_login(path: Path, registry: Registry, login: str) -> None:
    """Write what `skopeo login` would keep; `login` is user:password, or empty for none."""
    auths = {registry.address: {"auth": base64.b64encode(login.encode()).decode()}} if login else {}
    path.write_text(json.dumps({"auths": auths}))


def test_a_registry_that_is_down_cannot_be_reached(stage: Stage) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        error = stage.failure(f"docker://127.0.0.1:{taken.getsockname()[1]}/x")
    assert isinstance(error, ToolFailed)
    assert "cannot reach" in error.what
    assert "connection refused" in error.evidence


def test_a_rate_limited_registry_is_queried_again(make_stage: MakeStage, registry: Registry, one: str) -> None:
    with serve_busy(behind=registry.address) as (address, refused):
        host = address.removeprefix("http://")
        image = make_stage(insecure=host).find(one.replace(registry.address, host))
    check_content(image)
    assert {path.rpartition("/")[0] for path in refused} >= {"/v2", "/v2/it/one/manifests", "/v2/it/one/blobs"}


def test_a_registry_without_tls_is_refused_unless_it_is_named(make_stage: MakeStage, one: str) -> None:
    error = make_stage(insecure="").failure(one)
    assert error.what.endswith(" speaks HTTP, not HTTPS")
    assert "ARGOSY_INSECURE_REGISTRIES=127.0.0.1:" in error.hint


def test_an_image_for_another_machine_is_refused_before_it_is_fetched(
    stage: Stage, registry: Registry, layout: Path
) -> None:
    image = f"{layout}:other"
    do("umoci", "tag", "--image", f"{layout}:one", "other")
    do("umoci", "config", "--image", image, "--architecture", "riscv64")
    error = stage.failure(registry.push(f"oci:{image}", "it/other:1"))
    assert isinstance(error, ImageError)
    assert error.evidence == f"image: riscv64; wanted: {ARCH}"
    assert "skopeo copy" not in stage.runner.seen


def test_an_image_for_several_architectures_is_read_for_this_machine(
    stage: Stage, registry: Registry, layout: Path, one: str
) -> None:
    digest = push_index(registry, {ARCH: f"oci:{layout}:one", "riscv64": f"oci:{layout}:one"})
    several = fetch_image(parse_reference(f"docker://{registry.address}/it/several:1"), stage.session)
    assert several.reference.endswith(f":1@{digest}")
    assert several.path == stage.find(one)
    assert re.search(r"^fetch .* [0-9.]+ [kM]B", stage.said.getvalue(), re.MULTILINE)


def push_index(registry: Registry, images: Mapping[str, str]) -> str:
    """Push an index over some images, which skopeo cannot make, by the registry's own protocol; give its digest."""
    entries = []
    for arch, source in images.items():
        name = registry.push(source, f"it/several:{arch}")
        raw = do("skopeo", "inspect", "--raw", "--tls-verify=false", name).encode()
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        kind = "application/vnd.oci.image.manifest.v1+json"
        platform_of = {"os": "linux", "architecture": arch}
        entries.append({"mediaType": kind, "digest": digest, "size": len(raw), "platform": platform_of})
    kind = "application/vnd.oci.image.index.v1+json"
    body = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
    connection = http.client.HTTPConnection(registry.address)
    connection.request("PUT", "/v2/it/several/manifests/1", body, {"Content-Type": kind})
    reply = connection.getresponse()
    assert reply.status == http.HTTPStatus.CREATED, reply.read()
    connection.close()
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def test_several_processes_fetch_an_image_once(one: str, make_stage: MakeStage) -> None:
    stage = make_stage("shared")
    script = (
        "import sys; from argosy.cli.common import open_session; from argosy.images.find import fetch_or_find_image; "
        "print(fetch_or_find_image(sys.argv[1], open_session()))"
    )
    words = [sys.executable, "-c", script, one]
    several = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    replies = [process.communicate() for process in several]
    assert {out.strip() for out, _ in replies} == {str(stage.find(one))}
    assert sum("fetch " in err for _, err in replies) == 1


def test_a_base_is_identified_by_reference_and_digest(stage: Stage, one: str, tmp_path: Path) -> None:
    base = open_base(one, stage.session, tmp_path)
    assert re.fullmatch(rf"{re.escape(one)}@sha256:[0-9a-f]{{64}}", base.reference)
    assert base.image.arch == ARCH
    assert base.digest.startswith("sha256:")


def test_a_mistyped_base_names_the_nearest_form(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_base("docker:debian", stage.session, tmp_path)
    assert caught.value.hint == "write docker://debian"


def test_a_tar_of_a_root_file_system_is_packed_once(stage: Stage, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    archive = tmp_path / "root.tar.gz"
    do("tar", "-C", root, "-czf", archive, ".")
    image = stage.find(archive)
    assert open_image(image).image.kind is ImageKind.SQUASHFS
    stage.runner.seen.clear()
    assert stage.find(archive) == image
    assert stage.runner.seen == []
    _, command = prepare_run(RunRequest(str(archive), ("/bin/busybox", "echo", "hello")), stage.session)
    assert stage.runner.run(command).stdout == "hello\n"


def test_a_tar_of_something_else_is_refused(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/bin").write_text("x")
    do("tar", "-C", tmp_path, "-cf", tmp_path / "x.tar", "project")
    error = stage.failure(tmp_path / "x.tar")
    assert "does not contain a root file system" in error.what


def test_a_bare_squashfs_shows_whether_argosy_made_it(stage: Stage, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "opt/argosy").mkdir(parents=True)
    do("mksquashfs", root, tmp_path / "plain.sqsh", "-quiet", "-no-progress")
    (root / "opt/argosy/enter").write_text("#!/bin/sh\n")
    do("mksquashfs", root, tmp_path / "made.sqsh", "-quiet", "-no-progress")
    made = {
        name: inspect_squashfs(open_image(stage.find(tmp_path / f"{name}.sqsh")), stage.session).image.argosy
        for name in ("plain", "made")
    }
    assert made == {"plain": False, "made": True}


def test_if_no_program_can_fetch_both_alternatives_are_named(stage: Stage, one: str) -> None:
    for missing in (("skopeo",), ("umoci",)):
        error = stage.without(*missing, "apptainer", "singularity").failure(one)
        assert isinstance(error, ToolMissing)
        assert missing[0] in error.hint
        assert "apptainer" in error.hint


def test_without_skopeo_apptainer_fetches_into_the_cache(stage: Stage, one: str, tmp_path: Path) -> None:
    model = stage.find(one)
    fake = tmp_path / "bin/apptainer"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$1 $2 $3 $5" >> "{tmp_path}/words"\ncp "{model}" "$4"\n')
    fake.chmod(0o755)
    host = stage.session.host
    environment = {**host.environment, "PATH": f"{fake.parent}:{host.environment['PATH']}"}
    programs = {**host.programs, "apptainer": str(fake)}
    other = stage.changed(environment=environment, programs=programs).without("skopeo")
    found = {other.find(one), other.find(one)}
    assert len(found) == 1
    assert found != {model}
    assert (tmp_path / "words").read_text() == f"build --disable-cache --no-https {one}\n"
    assert "from the cache; remove" in stage.said.getvalue()
