from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import ArgosyError, ImageError
from argosy.core.records import replace
from argosy.images.open import listed_versions
from argosy.recipes.lock import (
    Lock,
    LockedBase,
    LockedPackage,
    LockedSource,
    LockedStep,
    PackageKind,
    SourceKind,
    Tools,
    lists_all_python,
    parse_lock,
    python_names,
    render_lock,
)
from argosy.recipes.sbom import render_sbom

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
DIGESTS = HEX.map("sha256:{}".format)
# What scrub would change cannot come back as it was.
WORDS = st.text(max_size=12).filter(lambda text: "/" not in text and "=" not in text)
NAMES = st.from_regex(r"[A-Za-z][a-z0-9._-]{0,5}[a-z0-9]", fullmatch=True)
VERSIONS = st.from_regex(r"[0-9]{1,3}[a-z0-9.+!]{0,5}", fullmatch=True)
PACKAGES = st.builds(
    LockedPackage, NAMES, VERSIONS, st.lists(HEX, max_size=2).map(tuple), st.sampled_from(list(SourceKind))
)
LOCKS = st.builds(
    Lock,
    base=st.builds(LockedBase, WORDS, DIGESTS, st.integers(0, 2**63), WORDS, WORDS),
    tools=st.builds(Tools, WORDS, WORDS, WORDS),
    time=st.integers(0, 2**32 - 1),
    content=DIGESTS,
    python=WORDS,
    packages=st.lists(PACKAGES, max_size=3, unique_by=lambda one: (one.name, one.version)).map(
        lambda found: tuple(sorted(found, key=lambda one: (one.name, one.version)))
    ),
    variables=st.lists(st.tuples(WORDS, WORDS), max_size=2).map(tuple),
    sources=st.lists(st.builds(LockedSource, WORDS, HEX), max_size=2).map(tuple),
    notes=st.lists(WORDS, max_size=2).map(tuple),
)
LOCK = Lock(
    base=LockedBase("debian:bookworm", "sha256:" + "a" * 64, 123, "x86_64", "Debian GNU/Linux 12 (bookworm)"),
    tools=Tools(argosy="0.1.0", uv="0.13.8", mksquashfs="4.5.1"),
    time=1_700_000_000,
    content="sha256:" + "b" * 64,
    python="3.11.2",
    packages=(
        LockedPackage("torch", "2.6.0+rocm6.2.4", ("c" * 64,)),
        LockedPackage("numpy", "1.26.4", ("d" * 64, "e" * 64), SourceKind.LOCAL),
    ),
    variables=(("OMP_NUM_THREADS", "4"),),
    sources=(LockedSource("environment.yml", "f" * 64),),
)


def test_a_lock_gives_the_versions_that_site_conditions_need() -> None:
    nccl = LockedPackage("nvidia-nccl-cu12", "2.21.5")
    assert listed_versions(replace(LOCK, packages=(*LOCK.packages, nccl))) == ("2.6.0+rocm6.2.4", "2.21.5")
    assert listed_versions(LOCK) == ("2.6.0+rocm6.2.4", "")


@given(LOCKS)
def test_a_lock_reads_back_as_it_was_rendered(lock: Lock) -> None:
    assert parse_lock(render_lock(lock), "argosy.lock") == lock


@given(st.text(max_size=80))
def test_any_text_parses_or_raises_an_argosy_error(text: str) -> None:
    with contextlib.suppress(ArgosyError):
        parse_lock(text, "argosy.lock")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_no_value_in_the_wrong_place_passes(value: object) -> None:
    for key in ("base", "packages", "sources", "tools"):
        data = json.loads(render_lock(LOCK)) | {key: value}
        if value == [] and key in {"packages", "sources"}:
            continue
        with pytest.raises(ImageError):
            parse_lock(json.dumps(data), "argosy.lock")


def test_a_lock_that_is_cut_off_is_refused() -> None:
    text = render_lock(LOCK)
    for end in range(0, len(text) - 2, 7):
        with pytest.raises(ImageError):
            parse_lock(text[:end], "argosy.lock")


def test_the_order_of_packages_does_not_change_the_bytes() -> None:
    text = render_lock(LOCK)
    assert render_lock(replace(LOCK, packages=LOCK.packages[::-1])) == text
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"python"', '"pyhton"', "did you mean 'python'"),
        ('"schema": 1', '"schema": 99', "later version"),
        ('"schema": 1', '"schema": true', "found true or false"),
        ('"time": 1700000000', '"time": -1', "squashfs"),
        ('"time": 1700000000', '"time": 1.5', "expected a whole number"),
        ('"size": 123', '"size": NaN', "expected a whole number"),
        ('"content": "sha256:', '"content": "md5:', "not a sha256"),
        ('"source": "local"', '"source": "elsewhere"', "elsewhere"),
        ('"uv": "0.13.8"', '"uv": "1", "uv": "2"', "twice"),
        ('"OMP_NUM_THREADS",', "", "length 2, got 1"),
        ('  "content"', '  "base": {}, "content"', "twice"),
    ],
)
def test_a_changed_lock_is_refused_with_the_position_of_the_change(old: str, new: str, said: str) -> None:
    text = render_lock(LOCK)
    assert old in text
    with pytest.raises(ImageError) as caught:
        parse_lock(text.replace(old, new, 1), "argosy.lock")
    assert said in str(caught.value)
    assert "argosy.lock" in str(caught.value)


def test_a_lock_without_schema_is_refused() -> None:
    data = json.loads(render_lock(LOCK))
    del data["schema"]
    with pytest.raises(ImageError):
        parse_lock(json.dumps(data), "argosy.lock")


def test_no_credential_ends_in_a_lock_or_bill() -> None:
    base = replace(LOCK.base, reference="https://me:planted@example.org/base.sif")
    lock = replace(LOCK, base=base, notes=("from https://me:planted@example.org/simple",))
    assert "planted" not in render_lock(lock)
    assert "planted" not in render_sbom(lock)


def test_a_bill_of_materials_matches_the_lock_and_has_no_date() -> None:
    text = render_sbom(LOCK)
    assert text == render_sbom(replace(LOCK, packages=LOCK.packages[::-1]))
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"].startswith("2023-11-14T22:13:20")
    found = {part["name"]: part for part in bill["components"]}
    assert found["torch"]["purl"] == "pkg:pypi/torch@2.6.0%2Brocm6.2.4"
    assert [one["content"] for one in found["numpy"]["hashes"]] == ["d" * 64, "e" * 64]
    assert found["debian:bookworm"]["type"] == "operating-system"
    other = json.loads(render_sbom(replace(LOCK, content="sha256:" + "0" * 64)))
    assert other["serialNumber"] != bill["serialNumber"]


@given(LOCKS)
def test_every_lock_has_a_bill_of_materials(lock: Lock) -> None:
    assert render_sbom(lock) == render_sbom(lock)


CONDA = LockedPackage(
    "_openmp_mutex",
    "4.5",
    ("1" * 64,),
    kind=PackageKind.CONDA,
    build="2_gnu",
    url="https://a.example/c/linux-64/x.tar.bz2",
)


def test_conda_packages_read_back_and_are_billed_with_build_channel_and_platform() -> None:
    lock = replace(
        LOCK, packages=(CONDA, replace(CONDA, name="pytorch", build="cuda126_0"), LockedPackage("zlib", "1"))
    )
    assert parse_lock(render_lock(lock), "argosy.lock") == lock
    found = {part["name"]: part for part in json.loads(render_sbom(lock))["components"]}
    purl = "pkg:conda/_openmp_mutex@4.5?build=2_gnu&channel=https://a.example/c&subdir=linux-64&type=tar.bz2"
    assert found["_openmp_mutex"]["purl"] == purl
    assert found["zlib"]["purl"] == "pkg:pypi/zlib@1"


def test_conda_s_pytorch_is_known_as_torch() -> None:
    conda = (replace(CONDA, name=name) for name in ("pytorch", "ray-core"))
    lock = replace(LOCK, packages=(*conda, LockedPackage("numpy", "1.26.4")))
    assert python_names(lock) == {"torch", "ray", "numpy"}


def test_no_credential_of_a_channel_ends_in_a_lock_or_bill() -> None:
    package = replace(CONDA, url="https://me:planted@a.example/t/planted/c/noarch/x.conda")
    lock = replace(LOCK, packages=(package,))
    assert "planted" not in render_lock(lock) + render_sbom(lock)


def test_a_lock_over_an_image_with_a_complete_lock_lists_all_packages() -> None:
    base = LockedBase("/sw/images/python.sif", "sha256:" + "a" * 64, 1, "amd64", listed=True)
    lock = replace(LOCK, base=base, packages=(), steps=(), stages=())
    assert lists_all_python(parse_lock(render_lock(lock), "x"))
    assert not lists_all_python(replace(lock, base=replace(base, listed=False)))
    assert '"listed"' not in render_lock(replace(lock, base=replace(base, listed=False)))


@pytest.mark.parametrize(
    ("reference", "packages", "steps", "complete"),
    [
        ("debian:bookworm", (), (), True),
        ("debian:bookworm+git", (), (), True),
        ("debian:bookworm+python3-torch", (), (), False),
        ("debian:bookworm+python3-mpi4py", (), (), False),
        ("docker://nvcr.io/nvidia/pytorch:25.10-py3", (), (), False),
        ("docker://x", (LockedPackage("python", "3.12", kind=PackageKind.CONDA),), (), True),
        ("docker://x", (LockedPackage("python", "3.12"),), (), False),
        ("debian:bookworm", (), (LockedStep(run=("pip install torch",)),), False),
    ],
)
def test_a_lock_knows_whether_python_sees_other_packages(
    reference: str, packages: tuple[LockedPackage, ...], steps: tuple[LockedStep, ...], *, complete: bool
) -> None:
    base = LockedBase(reference, "sha256:" + "a" * 64, 1, "amd64")
    assert lists_all_python(replace(LOCK, base=base, packages=packages, steps=steps, stages=())) is complete
