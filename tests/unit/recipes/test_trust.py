"""Files of the current folder that nobody named count only if the user, or root, owns them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.core.errors import SiteError, UsageError
from argosy.core.records import replace
from argosy.core.session import Paths, Session
from argosy.images.catalog import find_in_catalog
from argosy.launch.notes import note_site
from argosy.launch.request import read_request
from argosy.recipes import user_config
from argosy.recipes.project_file import find_project, read_project
from argosy.recipes.trust import foreign_owner
from argosy.runtimes.run import read_container_request
from argosy.sites.load import load_profile, sites_here
from tests.unit.cli.test_cli import argosy
from tests.unit.machines import Hearing, make_host, make_session

BOB = 4711
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Give a session in a folder with a project file, its images, and the profile of a cluster, which is here."""
    for name in (variable for variable in os.environ if variable.startswith(("ARGOSY_", "XDG_", "SUDO_"))):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(user_config, "SYSTEM_CONFIG", tmp_path / "etc/config.toml")
    here = tmp_path / "scratch"
    (here / "argosy-sites").mkdir(parents=True)
    (here / "argosy.toml").write_text('[launch]\nsite = "nimbus"\n')
    text = 'name = "nimbus"\ntitle = "N"\nscheduler = "slurm"\n[identity]\nclusters = ["nimbus"]\n'
    (here / "argosy-sites/nimbus.toml").write_text(f"{text}[modules]\nuse = ['/evil']\n")
    (here / "images").mkdir()
    (here / "images/base.sif").write_bytes(b"x")
    monkeypatch.chdir(here)
    host = make_host("sbatch", cwd=str(here), environment={"SLURM_CLUSTER_NAME": "nimbus"})
    return replace(make_session(tmp_path, host), paths=Paths(tmp_path, tmp_path, (tmp_path / "own",)))


@needs_root
@pytest.mark.parametrize("name", ["argosy-sites", "argosy-sites/nimbus.toml"])
def test_profiles_of_another_user_in_the_current_folder_are_not_used_and_noted(session: Session, name: str) -> None:
    own = load_profile("nimbus", session.host)
    folder = Path(session.host.cwd)
    assert [site.modules.use for site in sites_here(session.host)] == [("/evil",)]
    os.chown(folder / name, BOB, BOB)
    note = f"{folder}/argosy-sites is not used, because it belongs to user 4711"
    skipped: list[SiteError] = []
    assert sites_here(session.host, skipped.append) == ()
    assert (skipped[0].what, skipped[0].hint.partition(":")[0]) == (note, f"to trust all files in {folder}")
    with pytest.raises(SiteError, match="unknown site 'nimbus'") as unknown:
        load_profile("nimbus", session.host)
    assert note in unknown.value.evidence
    assert load_profile("argosy-sites/nimbus.toml", session.host).site.modules.use == ("/evil",)
    heard: list[str] = []
    note_site(replace(session, reporter=Hearing(heard)), own, {})
    assert heard[0].startswith(note)


@needs_root
def test_a_project_file_of_another_user_is_refused_and_its_images_are_not_found(session: Session) -> None:
    folder = Path(session.host.cwd)
    file = folder / "argosy.toml"
    assert find_in_catalog("base", session)
    os.chown(file, BOB, BOB)
    assert find_in_catalog("base", session) is None
    assert read_project(file).table.launch.site == "nimbus"  # named by the user
    with pytest.raises(UsageError, match="belongs to user 4711") as refused:
        find_project(folder)
    assert refused.value.hint == (
        f"copy it to a folder of your own, or, to trust all files in {folder}: "
        f"argosy config set trusted_folders {folder}"
    )
    with pytest.raises(UsageError, match="belongs to user 4711"):
        read_request({"image": "x.sif", "command": ("true",)}, session.host)
    with pytest.raises(UsageError, match="belongs to user 4711"):
        read_container_request({}, session)
    os.chown(file, 0, 0)
    os.chown(folder / "images", BOB, BOB)
    assert find_in_catalog("base", session) is None


@needs_root
def test_files_in_trusted_folders_may_belong_to_anybody(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(session.host.cwd)
    file = folder / "argosy.toml"
    os.chown(file, BOB, BOB)
    monkeypatch.chdir(folder.parent)
    assert argosy("config", "set", "trusted_folders", "/elsewhere").returncode == 0
    monkeypatch.chdir(folder)
    assert foreign_owner(file) == "user 4711"
    with pytest.raises(UsageError) as refused:
        find_project(folder)
    assert refused.value.hint.endswith(f"argosy config set trusted_folders /elsewhere:{folder}")
    assert argosy("config", "set", "trusted_folders", f"/elsewhere:{folder.parent}").returncode == 0
    assert foreign_owner(file) == ""
    monkeypatch.setenv("ARGOSY_TRUSTED_FOLDERS", f"{folder}-2")
    assert foreign_owner(file) == "user 4711"
    monkeypatch.setenv("ARGOSY_TRUSTED_FOLDERS", str(folder))
    assert foreign_owner(file) == ""


@needs_root
def test_a_link_counts_as_its_owner_and_as_the_owner_of_its_target(session: Session) -> None:
    file, link = Path(session.host.cwd, "argosy.toml"), Path(session.host.cwd, "link")
    link.symlink_to(file)
    assert foreign_owner(link, link.with_name("missing")) == ""
    os.lchown(link, BOB, BOB)
    assert foreign_owner(link) == "user 4711"
    os.lchown(link, 0, 0)
    os.chown(file, BOB, BOB)
    assert foreign_owner(link) == "user 4711"


@needs_root
def test_root_by_sudo_uses_the_files_of_the_user_and_a_user_those_of_root(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(session.host.cwd, "argosy.toml")
    os.chown(file, BOB, BOB)
    monkeypatch.setenv("SUDO_UID", str(BOB))
    assert foreign_owner(file) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert foreign_owner(file) == "user 4711"  # the variable of a user who is not root counts for nothing
    os.chown(file, 0, 0)
    assert foreign_owner(file) == ""
