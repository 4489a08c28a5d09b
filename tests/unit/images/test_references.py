"""References to images: what is read, what is completed, and what each mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import UsageError
from argosy.images.identify import Kind
from argosy.images.registry.references import (
    Reference,
    Transport,
    file_reference,
    guess_reference,
    is_reference,
    parse_reference,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "name", "tag", "digest"),
    [
        ("docker://debian", "docker.io/library/debian", "latest", ""),
        ("docker://debian:bookworm", "docker.io/library/debian", "bookworm", ""),
        ("docker://pytorch/pytorch:2.4.0-cuda12.4", "docker.io/pytorch/pytorch", "2.4.0-cuda12.4", ""),
        ("docker://docker.io/debian", "docker.io/library/debian", "latest", ""),
        ("docker://index.docker.io/x/y", "docker.io/x/y", "latest", ""),
        ("docker://nvcr.io/nvidia/pytorch:24.03-py3", "nvcr.io/nvidia/pytorch", "24.03-py3", ""),
        ("docker://localhost/x", "localhost/x", "latest", ""),
        ("docker://127.0.0.1:5000/x", "127.0.0.1:5000/x", "latest", ""),
        ("docker://[::1]:5000/x:1", "[::1]:5000/x", "1", ""),
        ("docker://HOST:5000/x__y/a-b.c", "HOST:5000/x__y/a-b.c", "latest", ""),
        (f"docker://x/y@{DIGEST}", "docker.io/x/y", "", DIGEST),
        (f"docker://x/y:1@{DIGEST}", "docker.io/x/y", "1", DIGEST),
    ],
)
def test_a_registry_reference_is_completed_as_docker_does(text: str, name: str, tag: str, digest: str) -> None:
    assert parse_reference(text) == Reference(Transport.DOCKER, name, tag, digest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker-archive:a.tar", Reference(Transport.DOCKER_ARCHIVE, "a.tar")),
        ("docker-archive:/x/a.tar:me/it:1", Reference(Transport.DOCKER_ARCHIVE, "/x/a.tar", "me/it:1")),
        ("oci-archive:/x/a.tar", Reference(Transport.OCI_ARCHIVE, "/x/a.tar")),
        ("oci-archive:///x/a.tar", Reference(Transport.OCI_ARCHIVE, "/x/a.tar")),
        ("oci:dir:tag", Reference(Transport.OCI, "dir", "tag")),
        ("docker-daemon:me/it", Reference(Transport.DOCKER_DAEMON, "me/it", "latest")),
        ("docker-daemon:me/it:2", Reference(Transport.DOCKER_DAEMON, "me/it", "2")),
        ("oras://ghcr.io/me/it:1", Reference(Transport.ORAS, "ghcr.io/me/it", "1")),
    ],
)
def test_every_other_transport_is_read(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("docker:debian", "write docker://debian"),
        ("docker:/debian", "write docker://debian"),
        ("dockr://debian", "did you mean docker://debian?"),
        ("Docker://debian", "did you mean docker://debian?"),
        ("docker_archive:x.tar", "did you mean docker-archive:x.tar?"),
        ("docker-archiv:x.tar", "did you mean docker-archive:x.tar?"),
        ("docker://Debian:12", "did you mean docker://debian:12?"),
        ("docker://nvcr.io/NVIDIA/PyTorch:1", "did you mean docker://nvcr.io/nvidia/pytorch:1?"),
        ("docker://nvcr.io#nvidia/pytorch", "did you mean docker://nvcr.io/nvidia/pytorch?"),
        ("docker://x//y", "did you mean docker://x/y?"),
        ("docker://x/y@1.0", "for a tag, write docker://x/y:1.0"),
        ("docker://x/y@sha256:12", "copy the complete digest"),
        ("docker://x:bad!tag", "at most 128 characters"),
        ("docker://", "the forms are docker://[REGISTRY/]NAME"),
        ("docker-archive:", "write docker-archive:FILE"),
        ("oci:", "write oci:DIR"),
        ("oras://me", "write oras://REGISTRY/me"),
        ("library://me/it", "apptainer pull"),
        ("https://hub.docker.com/r/pytorch/pytorch/tags", "write docker://pytorch/pytorch"),
        ("https://hub.docker.com/_/debian", "write docker://debian"),
        ("https://example.org/x.sif", "download the file"),
        ("docker-daemon:", "check the name"),
    ],
)
def test_a_mistake_is_answered_with_the_nearest_right_form(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "docker://me:geheim@ghcr.io/x/y:1",
        "docker://me:geheim@ghcr.io/x/y",
        "docker://me:ge@geheim@ghcr.io/x",
        "dockr://me:geheim@ghcr.io/x",
        "docker:me:geheim@ghcr.io/x",
        "docker:me:geheim@ghcr.io",
        "docker://me:ge/geheim@ghcr.io/x",
        "docker://me:geheim@ghcr.io/x@sha256:12",
        "https://me:geheim@hub.docker.com/x",
    ],
)
def test_a_password_is_never_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert "geheim" not in str(caught.value)


def test_a_login_in_a_reference_is_refused_with_the_login_command() -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference("docker://me:geheim@ghcr.io/x/y:1")
    assert "skopeo login ghcr.io" in caught.value.hint
    assert caught.value.hint.endswith("docker://ghcr.io/x/y:1")


@pytest.mark.parametrize("text", ["docker://x", "dockr://x", "docker:x", "oci:dir", "ftp://x", "docker-daemon:x"])
def test_a_name_with_a_transport_is_a_reference(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize("text", ["x.sif", "/a/b", "debian:bookworm", "my:image", "x/y:1", ""])
def test_any_other_name_is_not_a_reference(text: str) -> None:
    assert not is_reference(text)


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("pytorch/pytorch:2.4", "docker://pytorch/pytorch:2.4"),
        ("debian:bookworm", "docker://debian:bookworm"),
        ("digits.sif", ""),
        ("/scratch/me/x.sif", ""),
        ("../x.sif", ""),
    ],
)
def test_a_forgotten_transport_is_guessed_for_names_and_not_for_paths(text: str, guess: str) -> None:
    assert guess_reference(text) == guess


def test_archives_and_layouts_on_disk_become_references() -> None:
    path = Path("/x/a.tar")
    assert file_reference(Kind.DOCKER_ARCHIVE, path) == Reference(Transport.DOCKER_ARCHIVE, "/x/a.tar")
    assert file_reference(Kind.OCI_ARCHIVE, path) == Reference(Transport.OCI_ARCHIVE, "/x/a.tar")
    assert file_reference(Kind.OCI_LAYOUT, path) == Reference(Transport.OCI, "/x/a.tar")
    assert file_reference(Kind.SIF, path) is None


def test_a_pinned_reference_shows_name_tag_and_digest() -> None:
    assert str(parse_reference("docker://x/y:1").pinned_to(DIGEST)) == f"docker://x/y:1@{DIGEST}"
    assert str(parse_reference("docker://debian:12")) == "docker://debian:12"
    assert str(parse_reference("oci:dir").pinned_to(DIGEST)) == "oci:dir"


part = st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)?", fullmatch=True)
hosts = st.sampled_from(["", "ghcr.io/", "localhost:5000/", "127.0.0.1/"])
tags = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@given(hosts, st.lists(part, min_size=1, max_size=3), tags, st.sampled_from(["", DIGEST]))
def test_a_reference_reads_back_as_it_is_shown(host: str, parts: list[str], tag: str, digest: str) -> None:
    reference = parse_reference(f"docker://{host}{'/'.join(parts)}:{tag}{f'@{digest}' if digest else ''}")
    assert parse_reference(str(reference)) == reference


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_an_explained_mistake(text: str) -> None:
    for word in (text, f"docker://{text}", f"oci:{text}", f"docker-daemon:{text}"):
        assert outcome(word)


def outcome(word: str) -> str:
    """Give what a word is read as, or the hint of the mistake."""
    try:
        return str(parse_reference(word))
    except UsageError as error:
        return error.hint
