"""What is said to skopeo, and what its answers are taken for: recorded messages of skopeo 1.9 and of registries."""

from __future__ import annotations

import gzip
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolFailed, UsageError
from argosy.core.process import Command, FakeRunner, Reply
from argosy.images.registry import convert
from argosy.images.registry.references import parse_reference
from argosy.images.registry.skopeo import (
    RegistryFault,
    SkopeoOptions,
    classify_fault,
    explain_failure,
    explain_pull,
    is_insecure,
    last_message,
    parse_insecure,
    parse_manifest,
    plan_copy,
    plan_manifest,
    plan_push,
    render_source,
)
from tests.unit.machines import make_session

WAY = SkopeoOptions("amd64", "/tmp/w")  # noqa: S108 - a word
DIGEST = "sha256:" + "ab" * 32
REFERENCE = parse_reference("docker://reg.example/x/y:1")

SAID = [
    (
        RegistryFault.MISSING,
        "reading manifest 1 in 127.0.0.1:5571/x/none: manifest unknown: manifest unknown",
        UsageError,
    ),
    (RegistryFault.MISSING, "name unknown: repository name not known to registry", UsageError),
    (RegistryFault.LOGIN, "reading manifest 1 in x: unauthorized: authentication required", ToolFailed),
    (RegistryFault.LOGIN, "requested access to the resource is denied", ToolFailed),
    (RegistryFault.LOGIN, "unable to retrieve auth token: invalid username/password: unauthorized: bad", ToolFailed),
    (RegistryFault.LOGIN, "received unexpected HTTP status: 403 Forbidden", ToolFailed),
    (
        RegistryFault.SETTINGS,
        'getting username and password: * reading JSON file "/h/auth.json": open /h/auth.json: permission denied',
        ToolFailed,
    ),
    (RegistryFault.RATE, "toomanyrequests: You have reached your pull rate limit.", ToolFailed),
    (RegistryFault.RATE, "received unexpected HTTP status: 429 Too Many Requests", ToolFailed),
    (RegistryFault.TLS, 'Get "https://x/v2/": x509: certificate signed by unknown authority', ToolFailed),
    (RegistryFault.NO_TLS, 'Get "https://x/v2/": http: server gave HTTP response to HTTPS client', ToolFailed),
    (RegistryFault.NETWORK, "dial tcp 127.0.0.1:1: connect: connection refused", ToolFailed),
    (RegistryFault.NETWORK, "dial tcp: lookup nosuch.invalid on 10.0.0.1:53: no such host", ToolFailed),
    (RegistryFault.NETWORK, "net/http: TLS handshake timeout", ToolFailed),
    (RegistryFault.SILENT, "skopeo: no data for 90 seconds", ToolFailed),
    (RegistryFault.SERVER, "received unexpected HTTP status: 503 Service Unavailable", ToolFailed),
    (RegistryFault.FULL, "writing blob: write /x/oci-put-blob: no space left on device", CheckFailed),
    (RegistryFault.ARCH, 'no image found in manifest list for architecture amd64, variant "", OS linux', ImageError),
    (RegistryFault.OTHER, "something new", ToolFailed),
]


def reply(message: str) -> Reply:
    line = f'time="2026-01-01T00:00:00Z" level=fatal msg={json.dumps(message)}'
    return Reply(1, "", f"level=warning msg=before\n{line}\n")


@pytest.mark.parametrize(("fault", "said", "kind"), SAID)
def test_each_refusal_is_classified_and_explained(fault: RegistryFault, said: str, kind: type[ArgosyError]) -> None:
    assert classify_fault(said) is fault
    error = explain_failure(REFERENCE, Command(("skopeo",)), reply(said))
    assert type(error) is kind
    assert said in error.evidence
    assert "reg.example" in error.what


def test_the_last_message_of_a_log_has_no_credentials() -> None:
    assert last_message(reply('Get "https://me:geheim@x/v2/": EOF')) == 'Get "https://***@x/v2/": EOF'
    assert last_message(Reply(1, "", "FATAL:   plain\n\n")) == "FATAL:   plain"
    assert last_message(Reply(1, "", "")) == ""


def test_a_refused_login_names_the_login_command() -> None:
    error = explain_failure(REFERENCE, Command(("skopeo",)), reply("unauthorized: authentication required"))
    assert "skopeo login reg.example" in error.hint
    assert "check the name" in error.hint


@pytest.mark.parametrize("pushing", [False, True])
def test_without_a_runtime_folder_the_hint_names_the_variables_for_the_file_of_logins(pushing: bool) -> None:  # noqa: FBT001
    file = "/run/containers/1000/auth.json"
    said = f'getting username and password: reading JSON file "{file}": open {file}: permission denied'
    error = explain_failure(REFERENCE, Command(("skopeo",)), reply(said), pushing=pushing)
    assert "REGISTRY_AUTH_FILE" in error.hint
    assert "XDG_RUNTIME_DIR" in error.hint
    assert "REGISTRY_AUTH_FILE" not in explain_failure(REFERENCE, Command(("skopeo",)), reply("auth.json: bad")).hint


def test_a_compressed_archive_that_skopeo_cannot_read_has_the_command_to_decompress_it(tmp_path: Path) -> None:
    said = "loading tar component manifest.json: archive/tar: invalid tar header"
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(bytes(10_000)))
    (tmp_path / "x.tar").write_bytes(bytes(10_000))
    for name, hint in (("x.tar.gz", f"decompress it: gzip -dk {tmp_path}/x.tar.gz"), ("x.tar", "the file is complete")):
        error = explain_failure(parse_reference(f"docker-archive:{tmp_path}/{name}"), Command(("skopeo",)), reply(said))
        assert isinstance(error, ImageError)
        assert error.hint.endswith(hint)


def test_a_damaged_archive_is_an_image_error_and_no_network_trouble() -> None:
    error = explain_failure(parse_reference("docker-archive:x.tar"), Command(("skopeo",)), reply("unexpected EOF"))
    assert type(error) is ImageError
    for name, opened in (("docker-archive:x.tar", "x.tar"), ("oci:d", "d/index.json")):
        said = f'Error parsing image name: opening file "{opened}": open {opened}: no such file or directory'
        assert isinstance(explain_failure(parse_reference(name), Command(("skopeo",)), reply(said)), UsageError)
    for said in ("more than one image in oci", "Unexpected tar manifest.json: expected 1 item, got 2"):
        several = explain_failure(parse_reference("oci:d"), Command(("skopeo",)), reply(said))
        assert several.hint == "name one of the images in it: oci:d:NAME"


def test_skopeo_is_given_a_tag_or_a_digest_and_never_both() -> None:
    assert render_source(REFERENCE) == "docker://reg.example/x/y:1"
    assert render_source(REFERENCE.pinned_to(DIGEST)) == f"docker://reg.example/x/y@{DIGEST}"
    assert render_source(parse_reference("oci:d")) == "oci:d"


def test_tls_is_left_out_for_the_named_registries_only() -> None:
    named = parse_insecure({"ARGOSY_INSECURE_REGISTRIES": "reg.example, other:5000"})
    way = SkopeoOptions("amd64", "/w", named)
    assert "--tls-verify=false" in plan_manifest(REFERENCE, way).argv
    assert "--src-tls-verify=false" in plan_copy(REFERENCE, way, "oci:l:i").argv
    assert not any("tls-verify" in word for word in plan_manifest(REFERENCE, WAY).argv)
    assert is_insecure(parse_reference("docker://reg.example:443/x"), named)
    assert not is_insecure(parse_reference("docker://other:5001/x"), named)
    assert not is_insecure(parse_reference("oci:reg.example"), named)


def test_only_reading_from_a_registry_ends_when_no_data_arrives() -> None:
    assert plan_manifest(REFERENCE, WAY).idle == plan_copy(REFERENCE, WAY, "oci:l:i").idle > 60
    assert not plan_manifest(parse_reference("oci:d"), WAY).idle
    assert not plan_push("l:i", REFERENCE, WAY, digest_file="d").idle


def test_a_manifest_gives_size_and_digest() -> None:
    text = json.dumps({"layers": [{"size": 3}, {"size": 4}], "config": {}})
    assert parse_manifest(text, "amd64", "it").size == 7
    assert parse_manifest(text, "amd64", "it").chosen == ""


def index(*rows: tuple[str, str]) -> str:
    entries = [{"digest": f"sha256:{os}{arch}", "platform": {"os": os, "architecture": arch}} for os, arch in rows]
    return json.dumps({"manifests": entries})


def test_the_machines_architecture_is_chosen_among_several() -> None:
    text = index(("windows", "amd64"), ("linux", "arm64"), ("linux", "amd64"), ("unknown", "unknown"))
    assert parse_manifest(text, "amd64", "it").chosen == "sha256:linuxamd64"


def test_an_image_for_other_machines_only_is_refused_with_both_named() -> None:
    with pytest.raises(ImageError, match="it is for another architecture") as caught:
        parse_manifest(index(("linux", "arm64"), ("linux", "s390x")), "amd64", "it")
    assert caught.value.evidence == "image: arm64, s390x; wanted: amd64"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        '{"manifests": [{}]}',
        '{"layers": [5]}',
        '{"layers": [{"size": "x"}]}',
        '{"layers": [{"size": -1}]}',
        '{"layers": [{"size": 4611686018427387904}]}',
    ],
)
def test_an_unreadable_manifest_is_an_image_error(text: str) -> None:
    with pytest.raises(ImageError, match="cannot read the manifest"):
        parse_manifest(text, "amd64", "it")


NO_HOST = "dial tcp: lookup r.eu: no such host"
APPTAINER = "FATAL:   While performing build: conveyor failed to get: "
BUILDAH = "Error: creating build container: initializing source docker://"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f'{BUILDAH}r.eu:5000/a:1: Get "https://r.eu:5000/v2/": {NO_HOST}\n(exit code 125)',
         "cannot reach r.eu:5000; check the registry's name"),
        (f'{BUILDAH}debian:1: Get "https://registry-1.docker.io/v2/": {NO_HOST}',
         "cannot reach registry-1.docker.io"),
        (f"{BUILDAH}nvcr.io/a:1: reading manifest 1 in nvcr.io/a: unauthorized: authentication required",
         "nvcr.io denies permission to read nvcr.io/a:1; 'skopeo login nvcr.io'"),
        (f"{BUILDAH}debian:none: reading manifest none in docker.io/library/debian: manifest unknown",
         "the registry has no image debian:none; check the name and the tag; 'skopeo list-tags docker://debian'"),
        (f'FATAL:   While performing build: conveyor failed to get: Get "https://r.eu/v2/": {NO_HOST}',
         "cannot reach r.eu"),
        (f"{APPTAINER}GET http://r.eu:5777/v2/a/none/manifests/1: MANIFEST_UNKNOWN: manifest unknown; map[Tag:1]",
         "no image r.eu:5777/a/none:1; check the name and the tag; 'skopeo list-tags docker://r.eu:5777/a"),
        (f"{APPTAINER}GET https://index.docker.io/v2/library/debian/manifests/none: MANIFEST_UNKNOWN: manifest unknown",
         "the registry has no image debian:none; check the name and the tag; 'skopeo list-tags docker://debian'"),
        (f"{APPTAINER}GET https://r.eu/v2/a/manifests/sha256:12ab: MANIFEST_UNKNOWN: manifest unknown",
         "the registry has no image r.eu/a@sha256:12ab"),
        (f"{APPTAINER}manifest unknown", "the registry does not have the image; check the name and the tag"),
        (f'failed to resolve source metadata for r.eu/x:1: failed to do request: Head "https://r.eu/v2/x": {NO_HOST}',
         "cannot reach r.eu"),
        ("pull access denied for none-such, repository does not exist or may require 'docker login'",
         "docker.io denies permission to read none-such"),
        (f'Error response from daemon: Get "https://r.eu/v2/": {NO_HOST}', "cannot reach r.eu"),
        ("STEP 2/3: RUN curl https://r.eu/v2\ncurl: (7) Connection refused", ""),
        ("Reading package lists... not found\n(exit code 1)", ""),
        ("FATAL: conveyor failed to get: failed to retrieve path for a.sif: lstat a.sif: no such file", ""),
    ],
)  # fmt: skip
def test_an_engines_failed_pull_is_explained(said: str, told: str) -> None:
    found = explain_pull(f"$ buildah build .\n{said}")
    assert told in found
    assert bool(told) == found.startswith("cannot fetch the base: ")


@pytest.mark.parametrize(
    ("replies", "calls", "kind"),
    [
        (["writing blob: happened during read: unexpected EOF", ""], 2, None),
        (["reading blob: invalid status code from registry 503 (Service Unavailable)"] * 3, 3, ToolFailed),
        (["manifest unknown"], 1, UsageError),
        (["skopeo: no data for 90 seconds", ""], 2, None),
    ],
)
def test_a_copy_continues_after_the_connection_was_cut(
    monkeypatch: pytest.MonkeyPatch, replies: list[str], calls: int, kind: type[ArgosyError] | None
) -> None:
    monkeypatch.setattr(convert, "PAUSES", (0.0, 0.0))
    waiting, runner = [Reply(0, "", "") if not message else reply(message) for message in replies], FakeRunner()

    def run(_self: FakeRunner, command: Command, _on_line: object = None) -> Reply:
        runner.seen.append(command)
        return waiting.pop(0)

    monkeypatch.setattr(FakeRunner, "run", run)
    expected = pytest.raises(kind) if kind else nullcontext()
    with expected:
        convert.copy_layers(plan_copy(REFERENCE, WAY, "oci:/l:image"), REFERENCE, make_session(runner=runner))
    assert len(runner.seen) == calls
