"""What tykky's own tests ask of its commands, asked of ours; docs/reference/tykky.md has the list."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

TELL = """\
import json, os, shutil, sys, tinypkg
is_venv, found = sys.prefix != sys.base_prefix, shutil.which("python3")
print(json.dumps([sys.executable, is_venv, found, tinypkg.__file__, sys.argv[1]]))
"""
WORDS = "Hello world --a g -b \\ "


def tykky(shop: Shop, program: str, *words: str | Path, **env: str) -> Ended:
    return shop.argosy("compat", "run", program, *words, **env)


def call(prefix: Path, name: str, *words: str, code: int = 0, **env: str) -> str:
    """Call a wrapped command, and give what it prints."""
    variables = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": str(prefix.parent), "USER": "somebody"} | env
    done = subprocess.run(
        [prefix / "bin" / name, *words], env=variables, cwd=prefix.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr).strip()


@pytest.fixture(scope="module")
def env(pool: Shop) -> Path:
    """Make an environment in a folder that is not there yet, by paths relative to another folder."""
    place = pool.folder / "tykky"
    (place / "below").mkdir(parents=True)
    (place / "req.txt").write_text("tinypkg\n")
    site = place / "site.yaml"
    site.write_text(f"defaults:\n  container_src: {pool.base}\n  container_image: mine.sif\n")
    shop = replace(pool, folder=place / "below")
    done = tykky(shop, "pip-containerize", "new", "--prefix", "../env", "../req.txt", CW_GLOBAL_YAML=str(site))
    assert done.code == 0, done.err
    return place / "env"


def test_an_environment_of_relative_paths_is_a_venv_whose_python_is_the_same_inside_and_outside(env: Path) -> None:
    python, is_venv, found, package, word = json.loads(call(env, "python3", "-c", TELL, WORDS))
    assert (python, is_venv, found, word) == (f"{env}/bin/python3", True, f"{env}/bin/python3", WORDS)
    assert not Path(package).exists()


def test_a_venv_on_top_takes_packages_by_its_own_pip(env: Path, pool: Shop) -> None:
    call(env, "python", "-m", "venv", "top")
    top = env.parent / "top"
    ask = "import another, sys; print(sys.prefix != sys.base_prefix, another.__file__)"
    call(top, "pip", "install", "--quiet", "another", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(pool.wheels))
    assert call(top, "python", "-c", ask).startswith(f"True {top}/lib/")


def test_an_update_adds_packages_and_results_of_a_script_while_the_environment_is_on_path(
    env: Path, pool: Shop
) -> None:
    shop = replace(pool, folder=env.parent)
    script = shop.write("post.sh", "cd /opt/argosy/env/bin; printf '#!/bin/sh\necho made\n' > tool; chmod +x tool\n")
    path = f"{env}/bin:{shop.environment()['PATH']}"
    words = ("update", "env", "--post", script, "-r", shop.write("more.txt", "another  # why\n"))
    done = tykky(shop, "pip-containerize", *words, PATH=path)
    assert done.code == 0, done.err
    assert (call(env, "another"), call(env, "tool"), call(env, "tinypkg")) == ("another 0.3", "made", "tinypkg 2.0")
    record = json.loads((env / "versions/2/wrap.json").read_text())
    assert record["argosy"]
    assert record["recipe"]["after"] == [str(script)]


def test_a_missing_package_is_named_and_no_file_is_left(shop: Shop) -> None:
    words = ("new", "--prefix", "env", shop.write("req.txt", "tinypkgg\n"))
    site = shop.write("site.yaml", f"defaults:\n  container_src: {shop.base}\n")
    place = shop.folder / "not/there/yet"
    done = tykky(shop, "pip-containerize", *words, CW_GLOBAL_YAML=str(site), CW_BUILD_TMPDIR=str(place))
    assert done.code != 0
    assert "tinypkgg" in done.err
    assert not (shop.folder / "env").exists()
    assert [path for path in place.rglob("*") if path.is_file()] == []
    shop.nothing_left()


@pytest.mark.parametrize("mode", [0o555, 0o666], ids=["not writable", "not executable"])
def test_a_prefix_that_cannot_be_used_is_an_error_before_any_work(alices: Shop, mode: int) -> None:
    (alices.folder / "env").mkdir()
    (alices.folder / "env").chmod(mode)
    done = tykky(alices, "pip-containerize", "new", "--prefix", "env", alices.write("req.txt", "tinypkg\n"))
    assert done.code != 0
    assert f"{alices.folder}/env" in done.err
    assert "base" not in done.out
    assert "Traceback" not in done.err


def test_an_image_without_bash_is_wrapped_by_a_program_or_by_a_folder(shop: Shop, tiny: Path) -> None:
    assert tykky(shop, "wrap-container", "-w", "/bin/env", "--prefix", "one", tiny).code == 0
    assert [path.name for path in (shop.folder / "one/bin").iterdir()] == ["env"]
    seen = dict(
        line.split("=", 1) for line in call(shop.folder / "one", "env", PATH="/some/extra:/usr/bin:/bin").splitlines()
    )
    assert not [name for name in seen if name.startswith(("argosy_", "SINGULARITY", "APPTAINER", "OLD_"))]
    assert seen["PATH"] == f"{shop.folder}/one/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    site = shop.write("site.yaml", "force:\n  share_container: yes\n")
    done = tykky(shop, "wrap-container", "-w", "/bin", "--prefix", "all", tiny, CW_GLOBAL_YAML=str(site))
    assert done.code == 0, done.err
    assert {"busybox", "ls", "env", "tr"} <= {path.name for path in (shop.folder / "all/bin").iterdir()}
    assert call(shop.folder / "all", "echo", "a  b", "$c") == "a  b $c"
    assert (shop.folder / "all/versions/1/image.sqsh").readlink() == tiny
    assert shop.argosy("wrap", "update", "all", "--gpu", "none").code == 0
    assert (shop.folder / "all/versions/2/image.sqsh").readlink() == tiny


def test_a_wrapped_command_inside_another_container_tells_how_to_call_it(env: Path, shop: Shop, tiny: Path) -> None:
    done = shop.run(tiny, str(env / "bin/python"), "-V")
    assert done.code == 125
    assert "this is another container" in done.err
    assert f"run it outside the container: {env}/bin/python -V" in done.err


def test_a_masked_installation_is_read_only_at_its_own_path_and_otherwise_unchanged(shop: Shop, tiny: Path) -> None:
    program = shop.folder / "MyProg/bin/PP"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\ntouch "$@" && echo HELLO\n')
    program.chmod(0o755)
    site = shop.write("site.yaml", f"defaults:\n  container_src: {tiny}\n")
    words = ("MyProg/", "-w", "bin", "--prefix", "none", "--pre-install", site)
    assert "cannot be used with an installation" in tykky(shop, "wrap-install", *words).err
    assert not (shop.folder / "none").exists()
    for name, more in (("masked", ("--mask",)), ("beside", ())):
        words = ("MyProg/", "-w", "bin", "--prefix", name, *more)
        done = tykky(shop, "wrap-install", *words, CW_GLOBAL_YAML=str(site))
        assert done.code == 0, done.err
    assert call(shop.folder / "beside", "PP", str(shop.folder / "MyProg/A")) == "HELLO"
    assert "Read-only" in call(shop.folder / "masked", "PP", str(shop.folder / "MyProg/B"), code=1)
    assert (shop.folder / "MyProg/A").exists()
