"""Trees of layers that are kept for the next build, and lent to the cache of a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.probe import probe_host
from argosy.process import RealRunner
from argosy.session import Places, QuietReporter, Session
from argosy.trees import keep_layer, lend_layer, take_layer

SITE = "opt/argosy/env/lib/python3.11/site-packages"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(probe_host(), RealRunner(), Places(tmp_path / "cache", tmp_path / "state", ()), QuietReporter())


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    for name in (f"{SITE}/pkg/data/a.py", f"{SITE}/top.py", "opt/argosy/env/pyvenv.cfg", "opt/argosy/enter"):
        file = tmp_path / "work/layer" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "work/layer/opt/argosy/enter").chmod(0o755)
    (tmp_path / "work/layer/opt/argosy/env/lib64").symlink_to("lib")
    return tmp_path / "work/layer"


def test_one_build_takes_the_tree_that_another_kept(session: Session, layer: Path, tmp_path: Path) -> None:
    keep_layer(session, "key", layer)
    assert not layer.exists()
    assert take_layer(session, "key", tmp_path / "one")
    assert (tmp_path / "one/opt/argosy/enter").read_text() == "opt/argosy/enter"
    assert not take_layer(session, "key", tmp_path / "two")


def test_a_tree_that_is_kept_already_stays(session: Session, layer: Path) -> None:
    keep_layer(session, "key", layer)
    layer.mkdir()
    keep_layer(session, "key", layer)
    assert layer.exists()
    assert (session.places.cache / "layers/key/opt/argosy/enter").exists()


def test_what_is_lent_is_the_same_tree_and_a_file_that_a_build_writes_again_is_its_own(
    session: Session, layer: Path, tmp_path: Path
) -> None:
    keep_layer(session, "key", layer)
    lend_layer(session, "key", tmp_path)
    kept, lent = session.places.cache / "layers/key", tmp_path / "trees/key/root"
    names = sorted(str(path.relative_to(kept)) for path in kept.rglob("*"))
    assert names == sorted(str(path.relative_to(lent)) for path in lent.rglob("*"))
    assert (lent / "opt/argosy/env/lib64").readlink() == Path("lib")
    assert (lent / "opt/argosy/enter").stat().st_mode & 0o777 == 0o755
    shared = {name for name in names if (kept / name).is_file() and (kept / name).samefile(lent / name)}
    assert shared == {f"{SITE}/pkg/data/a.py"}


@pytest.mark.parametrize("kept", ["nothing", "no venv"])
def test_nothing_is_lent_where_no_venv_is_kept(session: Session, layer: Path, tmp_path: Path, kept: str) -> None:
    if kept == "no venv":
        (layer / "opt/argosy/env/pyvenv.cfg").unlink()
        keep_layer(session, "key", layer)
    lend_layer(session, "key", tmp_path)
    assert not (tmp_path / "trees").exists()
