"""From a recipe to its lock and back: what is kept, what may change, what cannot be brought back."""

from __future__ import annotations

import pytest

from argosy.builder.bundle import pip_variables
from argosy.builder.freeze import parse_conda, parse_dist, parse_dpkg, parse_rpm
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.records import replace
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, LockedSource, PackageKind, SourceKind, Tools
from argosy.recipes.recipe import PipOption, Recipe, Where
from argosy.recipes.relock import (
    as_locked,
    changed_sources,
    compare_locks,
    held_recipe,
    locked_indexes,
    locked_recipe,
    without_held,
)
from argosy.recipes.uv_options import UvSettings

SHA = "c" * 64
NUMPY = LockedPackage("numpy", "1.26.4", (SHA,))
OF_CONDA = LockedPackage(
    "tool",
    "1.0",
    (SHA,),
    kind=PackageKind.CONDA,
    build="h0",
    url="https://***@c.example/t/***/x/linux-64/tool-1.0-h0.conda",
)
GIT = LockedPackage("mine", "0.1", (), SourceKind.VCS, url="git+https://git.example/mine@abc")
LOCK = Lock(
    base=LockedBase("debian:bookworm", "sha256:" + "a" * 64, 1, "x86_64"),
    tools=Tools("0.1.0"),
    time=1,
    content="sha256:" + "b" * 64,
    packages=(NUMPY, OF_CONDA, GIT),
    variables=(("A", "1"),),
    sources=(LockedSource("environment.yml", SHA),),
    name="mine",
    requested=("tool>=1",),
    indexes=("extra-index-url https://i.example/simple",),
)


def test_a_lock_becomes_the_recipe_that_installs_it() -> None:
    recipe = locked_recipe(LOCK, "argosy.lock")
    assert recipe.exact
    assert [(line.spec, line.hashes) for line in recipe.pip] == [
        ("numpy==1.26.4", (f"sha256:{SHA}",)),
        ("mine @ git+https://git.example/mine@abc", ()),
    ]
    (pin,) = recipe.conda_pins
    assert (pin.name, pin.version, pin.build, pin.sha256) == ("tool", "1.0", "h0", SHA)
    assert locked_indexes(recipe) == LOCK.indexes
    assert (recipe.name, recipe.variables, recipe.requested) == ("mine", (("A", "1"),), ("tool>=1",))


def test_packages_of_the_bases_layer_are_not_installed_again() -> None:
    recipe = without_held(locked_recipe(LOCK, "argosy.lock"), (replace(NUMPY, sha256=()), OF_CONDA))
    assert [line.name for line in recipe.pip] == ["mine"]
    assert recipe.conda_pins == ()


def test_a_package_from_a_folder_cannot_be_brought_back() -> None:
    local = LockedPackage("here", "1.0", (), SourceKind.LOCAL)
    with pytest.raises(CheckFailed, match=r"cannot install here==1.0 from the lock"):
        locked_recipe(replace(LOCK, packages=(local,)), "argosy.lock")


def test_a_bundled_package_is_installed_by_its_hash_and_otherwise_by_its_url() -> None:
    url, digest = "git+https://host.example/a.git@77", "a" * 64
    git = LockedPackage("a", "1.0", (digest,), SourceKind.VCS, url=url)
    there, elsewhere = (
        locked_recipe(replace(LOCK, packages=(git,)), "argosy.lock", from_files=files).pip[0] for files in (True, False)
    )
    assert (there.spec, there.hashes) == ("a==1.0", (f"sha256:{digest}",))
    assert (elsewhere.spec, elsewhere.hashes) == (f"a @ {url}", ())
    seen = LockedPackage("a", "1.0", (digest,))
    assert as_locked((seen, NUMPY), (git,)) == (git, NUMPY)


def test_only_upgraded_packages_change() -> None:
    recipe = held_recipe(Recipe(), LOCK, ["NumPy"])
    assert [line.spec for line in recipe.constraints] == []
    assert [(limit.name, limit.version, limit.build) for limit in recipe.conda_limits] == [("tool", "==1.0", "h0")]
    recipe = held_recipe(Recipe(), LOCK, ["tool"])
    assert [(line.spec, line.hashes) for line in recipe.constraints] == [("numpy==1.26.4", ())]
    assert recipe.conda_limits == ()
    with pytest.raises(UsageError, match="no package nunpy") as error:
        held_recipe(Recipe(), LOCK, ["nunpy"])
    assert error.value.hint == "did you mean numpy?"


def test_folders_and_logins_of_this_machine_stay_out_of_a_lock() -> None:
    where = Where("r.txt", 1)
    options = (
        PipOption("extra-index-url", "https://me:planted@i.example/simple", where),
        PipOption("find-links", "/home/me/wheels", where),
        PipOption("pre", "", where),
    )
    assert locked_indexes(Recipe(options=options)) == ("extra-index-url https://i.example/simple",)


def test_changed_new_and_missing_files_are_named() -> None:
    now = (LockedSource("environment.yml", "d" * 64), LockedSource("more.txt", SHA))
    assert changed_sources(LOCK, now) == ("environment.yml has changed", "more.txt is not in the lock")
    assert changed_sources(LOCK, ()) == ("environment.yml is in the lock but was not passed",)
    assert changed_sources(LOCK, LOCK.sources) == ()


def test_a_comparison_lists_added_removed_and_changed_packages() -> None:
    other = replace(LOCK, packages=(replace(NUMPY, version="2.0"), GIT), variables=(("A", "2"), ("B", "1")))
    assert [str(change) for change in compare_locks(LOCK, other)] == [
        "~ package numpy (pypi) 1.26.4 -> 2.0",
        "- package tool (conda) 1.0 h0",
        "~ variable A 1 -> 2",
        "+ variable B 1",
    ]
    assert [str(change) for change in compare_locks(other, LOCK)] == [
        "~ package numpy (pypi) 2.0 -> 1.26.4",
        "+ package tool (conda) 1.0 h0",
        "~ variable A 2 -> 1",
        "- variable B 1",
    ]
    assert compare_locks(LOCK, LOCK) == ()


def test_records_of_package_managers_are_read() -> None:
    record = '{"name": "tool", "version": "1.0", "build": "h0", "url": "https://me:planted@c.example/x/tool.conda"}'
    (tool,) = parse_conda(record)
    assert (tool.kind, tool.url) == (PackageKind.CONDA, "https://***@c.example/x/tool.conda")
    (dist,) = parse_dist("Metadata-Version: 2.1\nName: Typing_Extensions\nVersion: 4.0\n\nName: other\n")
    assert (dist.name, dist.version) == ("typing-extensions", "4.0")
    status = "Package: a\nStatus: install ok installed\nVersion: 1:2.0~rc1-1\n\n"
    status += "Package: b\nStatus: deinstall ok config-files\nVersion: 1\n"
    assert [(p.name, p.version, p.kind) for p in parse_dpkg(status)] == [("a", "1:2.0~rc1-1", PackageKind.DEB)]
    (rpm,) = parse_rpm("bash\t5.1.8-9.el9\ngpg-pubkey\t1-2\n")
    assert (rpm.name, rpm.version, rpm.kind) == ("bash", "5.1.8-9.el9", PackageKind.RPM)


def test_logins_reach_pip_by_variables() -> None:
    settings = UvSettings(
        ("--default-index", "argosy-0=https://i.example/simple", "--find-links", "file:///w"),
        (("UV_INDEX_ARGOSY_0_USERNAME", "me"), ("UV_INDEX_ARGOSY_0_PASSWORD", "a/b"), ("SSL_CERT_FILE", "/ca.pem")),
    )
    found = dict(pip_variables(settings))
    assert found["PIP_INDEX_URL"] == "https://me:a%2Fb@i.example/simple"
    assert found["PIP_FIND_LINKS"] == "file:///w"
    assert found["PIP_CERT"] == "/ca.pem"
    assert not any(name.startswith("UV_") for name in found)
