"""A project file end to end: steps change the image, stages leave only their results, and what fails says its line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.core.process import Command, RealRunner
from argosy.images.open import open_image

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

ALICE = 2001
REPO = Path(__file__).parents[2]
MODEL = b"weights\n"
PROJECT = f"""\
[image]
base = "{{base}}"
pip = "requirements.txt"
output = "mine.sif"

[[step]]
before = "packages"
run = "echo early > /etc/early; rm /etc/debian_version /usr/bin/nohup; rm -r /etc/skel; mkdir /etc/skel"

[[step]]
copy = ["data", "word.txt"]
to = "/lib/mine/"

[[step]]
fetch = {{{{ url = "file://{{folder}}/model.bin", sha256 = "{hashlib.sha256(MODEL).hexdigest()}" }}}}
to = "/opt/models/"

[[step]]
run = ["tinypkg > /etc/late", "chmod 4755 /etc/late"]
"""
SHOW = (
    "cat /etc/early /lib/mine/word.txt /lib/mine/data/inner /opt/models/model.bin /etc/late; stat -c %a /etc/late; "
    "ls -A /etc/skel /etc/debian_version /usr/bin/nohup 2>&1; readlink /lib; ls -d /.argosy 2>&1"
)
SHOWN = """\
early
word
inner
weights
tinypkg 2.0
755
ls: cannot access '/etc/debian_version': No such file or directory
ls: cannot access '/usr/bin/nohup': No such file or directory
/etc/skel:
usr/lib
ls: cannot access '/.argosy': No such file or directory
"""


@pytest.fixture
def project(shop: Shop) -> Shop:
    """Write a project whose steps add, change and remove files."""
    (shop.folder / "data").mkdir()
    shop.write("data/inner", "inner\n")
    shop.write("word.txt", "word\n")
    shop.write("requirements.txt", "tinypkg\n")
    (shop.folder / "model.bin").write_bytes(MODEL)
    shop.write("argosy.toml", PROJECT.format(base=shop.base, folder=shop.folder))
    return shop


@pytest.mark.parametrize("more", [("--format", "delta"), ("--build-backend", "userns")], ids=["layer", "userns, flat"])
def test_changes_of_steps_are_in_the_image(project: Shop, more: tuple[str, ...]) -> None:
    done = project.argosy("build", *more)
    assert done.code == 0, done.err
    project.nothing_left(project.folder / "mine.sif")
    ran = project.run(project.folder / "mine.sif", "sh", "-c", f"{SHOW}; true")
    assert ran.out == SHOWN, ran.err
    image = open_image(project.folder / "mine.sif").image
    offset = str(image.base_offset if image.layer_offset < 0 else image.layer_offset)
    listed = RealRunner().run(Command(("unsquashfs", "-lls", "-o", offset, image.path, "etc/late")))
    assert "-rwsr-xr-x" in listed.stdout


def test_a_flat_image_has_no_bytes_of_removed_files(shop: Shop) -> None:
    step = (
        '[[step]]\nrun = "rm -r /usr/lib/python3.11/pydoc_data /usr/share/perl /usr/lib/x86_64-linux-gnu/perl-base"\n'
    )
    sizes = []
    shop.write("requirements.txt", "tinypkg\n")
    head = f'[image]\nbase = "{shop.base}"\npip = "requirements.txt"\nformat = "flat"\n'
    for name, text in (("all", ""), ("slim", step)):
        shop.write("argosy.toml", f'{head}output = "{name}.sif"\n{text}')
        done = shop.argosy("build")
        assert done.code == 0, done.err
        sizes.append((shop.folder / f"{name}.sif").stat().st_size)
    assert sizes[1] < sizes[0]


def test_an_archive_of_the_image_has_the_changes_of_steps_and_no_removed_files(project: Shop) -> None:
    assert project.argosy("build").code == 0
    for form in ("docker-archive", "oci-archive"):
        done = project.argosy("images", "export", "mine.sif", "--format", form, "-o", f"{form}.tar")
        assert done.code == 0, done.err
        ran = project.run(project.folder / f"{form}.tar", "sh", "-c", f"{SHOW}; true")
        assert ran.out == SHOWN, ran.err
    done = project.argosy("images", "export", "mine.sif", "--format", "layer", "-o", "mine.sqsh")
    assert (done.code, (project.folder / "mine.sqsh").exists()) == (2, False)
    assert "cannot write only the layer" in done.err


LINE = """[image]
base = "{base}"
output = "{name}.sif"
[[step]]
run = "rm {gone}; echo {name} > /etc/new; chown 33:33 /etc/new; chmod 4711 /etc/new; [ $(stat -c %a /etc/new) = 4711 ]"
"""
LOOK = "for file in /etc/old /bin/printf /bin/env /bin/cat; do [ ! -e $file ] || echo $file; done"
IMAGES: tuple[tuple[str, str, str, list[str]], ...] = (
    ("one", "{tiny}", "/bin/printf /etc/old", ["/bin/env"]),
    ("two", "one.sif", "/bin/env", []),
)


@pytest.mark.parametrize("backend", ["userns", "proot"])
def test_removed_files_are_gone_for_a_user_and_over_the_users_image_as_base(
    alices: Shop, tiny: Path, backend: str
) -> None:
    need(backend)
    for name, base, gone, kept in IMAGES:
        alices.write("argosy.toml", LINE.format(base=base.format(tiny=tiny), name=name, gone=gone))
        built = alices.argosy("build", "--build-backend", backend)
        assert built.code == 0, built.err
        alices.nothing_left(alices.folder / f"{name}.sif")
        ran = alices.run(alices.folder / f"{name}.sif", "sh", "-c", f"cat /etc/new; {LOOK}")
        assert ran.out.split() == [name, *kept, "/bin/cat"], ran.err
        done = alices.argosy("images", "export", f"{name}.sif", "--format", "oci-archive", "-o", f"{name}.tar")
        assert done.code == 0, done.err
        ran = alices.run(alices.folder / f"{name}.tar", "sh", "-c", f"cat /etc/new; {LOOK}")
        assert ran.out.split() == [name, *kept, "/bin/cat"], ran.err


OUTSIDE = """\
[image]
base = "{tiny}"
output = "x.sif"
[[{table}]]
{lines}
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("table", "lines"),
    [
        ("step", "run = 'rm -rf /var; mkdir /var; ln -s {mine} /var/cache; mkdir -p /lib/x; ln -s {mine} /data'"),
        ("stage", "name = 's'\nbase = '{tiny}'\nrun = 'ln -s {mine}/apt/key made'\nresults = {{ made = '/opt/' }}"),
    ],
    ids=["step", "stage"],
)
@pytest.mark.parametrize("backend", ["root", "proot"])
def test_links_of_steps_and_stages_lead_to_no_file_of_this_machine(
    shop: Shop, tiny: Path, backend: str, table: str, lines: str
) -> None:
    need(backend)
    mine = shop.folder / "mine"
    (mine / "apt").mkdir(parents=True)
    (mine / "apt/key").write_text("secret\n")
    shop.write("argosy.toml", OUTSIDE.format(tiny=tiny, table=table, lines=lines.format(mine=mine, tiny=tiny)))
    built = shop.argosy("build", "--build-backend", backend)
    assert (mine / "apt/key").read_text() == "secret\n"
    if table == "stage":
        assert (built.code, "the stage did not create made" in built.err) == (7, True), built.err
    else:
        assert built.code == 0, built.err


@pytest.mark.lab
def test_steps_and_a_stage_run_with_apptainer_alone(shop: Shop, tiny: Path) -> None:
    lines = "run = 'echo made > made; chown 5:5 made'\nresults = {{ made = '/opt/' }}\n"
    stage = f"[[stage]]\nname = 's'\nbase = '{{tiny}}'\n{lines}"
    shop.write("argosy.toml", (LINE + stage).format(base=tiny, tiny=tiny, name="one", gone="/bin/printf /etc/old"))
    own = replace(shop, cache=shop.folder / "cache")
    shutil.copytree(shop.cache / "tools", own.cache / "tools")
    for path in (shop.folder, *own.cache.rglob("*"), own.cache):
        os.chown(path, ALICE, ALICE)
    done = own.lab("argosy", "build", "--build-backend", "apptainer", ARGOSY_CACHE=str(own.cache))
    assert done.code == 0, done.err
    own.nothing_left(own.folder / "one.sif")
    ran = own.lab("apptainer", "exec", "one.sif", "sh", "-c", f"cat /etc/new /opt/made; {LOOK}")
    assert ran.out.split() == ["one", "made", "/bin/env", "/bin/cat"], ran.err


def need(backend: str) -> None:
    if backend == "proot" and not shutil.which("proot"):
        pytest.skip("proot is not installed here")


def test_steps_are_locked_replayed_to_the_byte_and_missed_when_they_change(project: Shop) -> None:
    locked = project.argosy("lock")
    assert locked.code == 0, locked.err
    assert project.argosy("lock", "--check").code == 0
    again = project.argosy("build", "--locked", "-o", "again.sif", "--json")
    assert again.code == 0, again.err
    digest = json.loads((project.folder / "argosy.lock").read_text())["content"]
    assert json.loads(again.out)["digest"] == digest
    stands = project.argosy("build", "--locked", "-o", "again.sif")
    assert "nothing was done" in stands.out
    project.write("word.txt", "other\n")
    for words in (("lock", "--check"), ("build", "--locked", "-o", "other.sif")):
        stale = project.argosy(*words)
        assert (stale.code, "step 2 has changed: word.txt" in stale.err) == (7, True), stale.err


@pytest.mark.parametrize("kind", ["step", "script"])
def test_programs_of_a_build_reach_the_network_as_the_user_does(project: Shop, kind: str) -> None:
    ask = 'cat "$SSL_CERT_FILE" "$PIP_CERT"; echo "$https_proxy $HTTP_PROXY"; exit 3\n'
    own = project.write("own.pem", "the site's authority\n")
    project.write("argosy.toml", f"[image]\nbase = '{project.base}'\n[[step]]\nrun = '''{ask}'''\n")
    words: tuple[str | Path, ...] = ("build", "-o", "x.sif")
    if kind == "script":
        recipe = project.write("r.txt", "tinypkg\n")
        words = (
            "wrap",
            recipe,
            "--base",
            project.base,
            "--prefix",
            "p",
            "--post-install",
            project.write("ask.sh", ask),
        )
    network = {"https_proxy": "http://proxy:1", "HTTP_PROXY": "http://proxy:2", "no_proxy": "*"}
    done = project.argosy(*words, SSL_CERT_FILE=str(own), PIP_CERT=str(own), **network)
    assert done.code == 5, done.err
    said = [line.strip() for line in done.err.splitlines()]
    assert said.count("the site's authority") >= 2, done.err
    assert "http://proxy:1 http://proxy:2" in said


def test_a_failed_step_is_reported_with_its_line_and_last_output_and_leaves_nothing(project: Shop) -> None:
    text = (project.folder / "argosy.toml").read_text()
    project.write("argosy.toml", f'{text}\n[[step]]\nrun = "echo nearly; cat /nothing/here"\n')
    done = project.argosy("build")
    assert done.code == 5
    line = text.count("\n") + 3
    assert f"argosy.toml:{line}: echo nearly; cat /nothing/here" in done.err
    assert "/nothing/here: No such file" in done.err
    assert not (project.folder / "mine.sif").exists()
    project.write("argosy.toml", f"{text}\n[[step]]\nrun = \"echo 'E: Unable to locate package jq'; exit 100\"\n")
    assert "-> the base has no Debian package lists" in project.argosy("build").err
    project.nothing_left()


def test_a_file_with_another_digest_is_refused_with_both_digests(project: Shop) -> None:
    (project.folder / "model.bin").write_bytes(b"others\n")
    shutil.rmtree(project.cache / "downloads", ignore_errors=True)
    done = project.argosy("build")
    assert done.code == 7
    assert hashlib.sha256(MODEL).hexdigest() in done.err
    assert hashlib.sha256(b"others\n").hexdigest() in done.err


def test_a_program_compiled_in_a_stage_runs_in_an_image_without_the_compiler(shop: Shop) -> None:
    for name in ("argosy.toml", "nbody.c"):
        shutil.copy(REPO / "examples/nbody" / name, shop.folder)
    done = shop.argosy("build", "--base", shop.base, "--json")
    assert done.code == 0, done.err
    results, rest = map(float, re.findall(r"stage compile: ([\d.]+) MB of results, .*?([\d.]+) MB", done.err)[0])
    assert rest > results
    lock = json.loads(shop.run(shop.folder / "nbody.sif", "cat", "/opt/argosy/argosy.lock").out)
    assert lock["stages"][0]["digest"].startswith("sha256:")
    ran = shop.run(shop.folder / "nbody.sif", "nbody", "512", "2")
    assert re.search(r"512 bodies, 2 steps, \d+ threads: [\d.]+ GFLOP/s\nmomentum kept", ran.out), ran.err
    assert shop.run(shop.folder / "nbody.sif", "sh", "-c", "command -v gcc").code != 0
    slim = shop.argosy("images", "slim", "nbody.sif", "--json", "--", "nbody", "64", "1")
    assert json.loads(slim.out)["results"] == ["/usr/local/bin/nbody"], slim.err
