"""Signatures are Apptainer's to verify; here its replies, as 1.4.5 gives them, are read and refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError, CheckFailed, ImageError, SiteError, ToolFailed, ToolMissing, UsageError
from argosy.core.model import ContainerRequest, plain_fingerprint
from argosy.core.process import FakeRunner, Reply
from argosy.images.sif.format import DataType, Sif, SifHeader, SifPart
from argosy.images.signatures import Signer, find_signers
from argosy.launch.site_settings import container_at_site
from argosy.recipes.job_options import with_job
from argosy.recipes.project_file import read_project
from argosy.runtimes.container_plan import parse_container, parse_signer
from argosy.runtimes.open_container import open_container
from argosy.sites.profile import Site
from argosy.sites.read import read_site
from argosy.sites.software import Images
from tests.unit.machines import make_session

ADA = Signer("6926D087304A1EA97479578CE5C16CF88A8323FA", "Ada <ada@example.org>")
BOB = Signer("4C56839D59665B91F0F1E5D06C85C10B0CEE86A0", "Bob <bob@example.org>")
HERE = {"apptainer": "/usr/bin/apptainer"}


def part(number: int, datatype: int, group: int, extra: bytes = b"") -> SifPart:
    return SifPart(number, datatype, group, 4096 * number, 10, 10, "", extra)


SIGNATURE = part(3, DataType.SIGNATURE, 0, bytes(4) + bytes.fromhex(ADA.fingerprint))


def sif(*parts: SifPart) -> Sif:
    header = SifHeader("amd64", 0, 0, 0, 0, 0, 0)
    return Sif(Path("my.sif"), 99999, header, (part(1, DataType.PARTITION, 1), part(2, DataType.JSON, 1), *parts))


def told(*signers: Signer) -> str:
    """Give what ``apptainer verify --json`` prints: a row for each part and signer."""
    rows = [
        {"Partition": kind, "Name": signer.name, "Fingerprint": signer.fingerprint.lower(),
         "KeyLocal": True, "KeyCheck": True, "DataCheck": True}
        for signer in signers for kind in ("FS", "JSON.Generic")
    ]  # fmt: skip
    return json.dumps({"Signatures": len(signers), "SignerKeys": [{"Signer": row} for row in rows] or None})


def answering(text: str, code: int = 0, fatal: str = "") -> FakeRunner:
    reply = Reply(code, text, f"INFO:    Verifying image with PGP key material\n{fatal}\n")
    return FakeRunner(replies=[(("apptainer", "verify"), reply)])


def test_each_signer_is_listed_once_and_fingerprints_match_in_any_form() -> None:
    runner = answering(told(ADA, BOB))
    assert find_signers(sif(SIGNATURE), "my.sif", (), runner, HERE) == (ADA, BOB)
    copied = "0x4c56 839d 5966 5b91 f0f1  e5d0 6c85 c10b 0cee 86a0"
    assert find_signers(sif(SIGNATURE), "my.sif", (copied,), runner, HERE) == (BOB,)
    assert runner.seen[0].argv == ("apptainer", "verify", "--json", "--local", "my.sif")


def test_only_keys_that_signed_every_group_are_signers() -> None:
    runner = FakeRunner(
        replies=[
            (("apptainer", "verify", "--json", "--local", "--group-id", "1"), Reply(0, told(ADA, BOB), "")),
            (("apptainer", "verify", "--json", "--local", "--group-id", "2"), Reply(0, told(BOB), "")),
            (("apptainer", "verify"), Reply(0, told(ADA, BOB), "")),
        ]
    )
    several = sif(part(4, DataType.PARTITION, 2), SIGNATURE)
    assert find_signers(several, "my.sif", (), runner, HERE) == (BOB,)
    with pytest.raises(CheckFailed, match=ADA.fingerprint):
        find_signers(several, "my.sif", (ADA.fingerprint,), runner, HERE)


@pytest.mark.parametrize(
    ("image", "runner", "error", "words"),
    [
        (sif(), answering(""), CheckFailed, "my.sif is not signed"),
        (None, answering(""), CheckFailed, "only SIF files"),
        (sif(SIGNATURE), answering(told(BOB)), CheckFailed, f"signed by {BOB.fingerprint}, {BOB.name}"),
        (
            sif(SIGNATURE),
            answering("", 255, "FATAL:   Failed to verify container: integrity: data object integrity compromised: 1"),
            ImageError,
            "was changed after it was signed",
        ),
        (
            sif(SIGNATURE),
            answering("", 255, "FATAL:   … signature object 3 not valid: openpgp: signature made by unknown entity"),
            CheckFailed,
            f"its signatures name {ADA.fingerprint}; 'apptainer key list' lists yours",
        ),
        (
            sif(SIGNATURE),
            answering("", 255, "FATAL:   Failed to verify container: integrity: object 6: object not signed"),
            CheckFailed,
            "do not cover all of it",
        ),
        (sif(SIGNATURE), answering("", 255, "FATAL:   mkdir /.apptainer: permission denied"), ToolFailed, "mkdir"),
        (sif(SIGNATURE), answering("no JSON"), ToolFailed, "no JSON"),
    ],
)
def test_an_image_without_the_required_signature_is_refused_with_the_reason(
    image: Sif | None, runner: FakeRunner, error: type[ArgosyError], words: str
) -> None:
    with pytest.raises(error) as refused:
        find_signers(image, "my.sif", (ADA.fingerprint,), runner, HERE)
    assert words in str(refused.value)
    assert refused.value.hint or error is ToolFailed


def test_without_apptainer_a_signature_cannot_be_verified() -> None:
    with pytest.raises(ToolMissing, match="is not installed"):
        find_signers(sif(SIGNATURE), "my.sif", (), FakeRunner(), {"apptainer": "", "bwrap": "/usr/bin/bwrap"})


def test_a_short_key_id_is_refused_as_fingerprint() -> None:
    assert plain_fingerprint(ADA.fingerprint.lower()) == ADA.fingerprint
    with pytest.raises(UsageError, match="invalid key fingerprint '8A8323FA'"):
        parse_signer("8A8323FA")


def test_an_option_overrides_the_signers_that_the_site_requires(tmp_path: Path) -> None:
    site = Site(images=Images(signed_by=(ADA.fingerprint,)))
    assert container_at_site(ContainerRequest(), site).signed_by == (ADA.fingerprint,)
    assert container_at_site(ContainerRequest(signed_by=(BOB.fingerprint,)), site).signed_by == (BOB.fingerprint,)
    assert container_at_site(ContainerRequest(runtime="bare"), site).signed_by == ()
    profile = tmp_path / "lab.toml"
    profile.write_text('name = "lab"\n[images]\nsigned_by = ["ada@example.org"]\n')
    with pytest.raises(SiteError, match=r"invalid key fingerprint 'ada@example.org'"):
        read_site(str(profile))


def test_an_option_overrides_the_signers_that_the_project_requires(tmp_path: Path) -> None:
    file = tmp_path / "argosy.toml"
    file.write_text(f'[launch]\nsigned_by = ["{ADA.fingerprint}"]\n[job.train]\ncommand = ["true"]\n')
    project = read_project(file)
    words = with_job(project, "train", {})
    assert parse_container(words, {}).signed_by == (ADA.fingerprint,)
    assert words["sources"]["signed_by"][1] == "argosy.toml:2"
    assert parse_container(with_job(project, "train", {"signed_by": (BOB.fingerprint,)}), {}).signed_by == (
        BOB.fingerprint,
    )


@pytest.mark.parametrize(
    ("reference", "runtime", "words"),
    [("bare:", "bare", "it is not an image"), ("docker://x/y", "pyxis", "pyxis pulls it itself")],
)
def test_without_a_file_to_verify_signatures_are_refused(
    reference: str, runtime: str, words: str, tmp_path: Path
) -> None:
    request = ContainerRequest(runtime=runtime, signed_by=(ADA.fingerprint,))
    with pytest.raises(UsageError, match=words):
        open_container(request, reference, make_session(tmp_path))
