"""Steps that install with dnf and zypper: packages whose files have owners, from a repository made here."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = [pytest.mark.real, pytest.mark.soak]

SPEC = """\
Name: owned
Version: 1.0
Release: 1
Summary: files of several owners
License: none
BuildArch: noarch
Provides: /bin/sh
%description
The base has no other package that rpm knows of.
%install
mkdir -p %{buildroot}/usr/share/owned %{buildroot}/usr/bin
printf '#!/bin/sh\\necho owned\\n' > %{buildroot}/usr/bin/owned
echo a > %{buildroot}/usr/share/owned/a
%post
touch /usr/share/owned/post; chown 33:33 /usr/share/owned/post
%files
%attr(0755,root,root) /usr/bin/owned
%attr(0640,daemon,adm) /usr/share/owned/a
"""
DNF = "dnf -y --repofrompath=mine,file:///srv/repo --disablerepo=* --enablerepo=mine --nogpgcheck install owned"
ZYPPER = "zypper -n addrepo -G file:///srv/repo mine; zypper -n --no-gpg-checks install --allow-unsigned-rpm owned"
PROJECT = """\
[image]
base = "debian:bookworm+dnf+zypper+rpm"
output = "out.sif"
[[step]]
copy = ["repo"]
to = "/srv/"
[[step]]
run = "{line}"
"""


@pytest.mark.parametrize("backend", ["root", "userns", "proot"])
@pytest.mark.parametrize("line", [DNF, ZYPPER], ids=["dnf", "zypper"])
def test_packages_with_owners_are_installed(shop: Shop, backend: str, line: str) -> None:
    for tool in ("rpmbuild", "createrepo_c", "bwrap" if backend != "proot" else backend):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    shop.write("owned.spec", SPEC)
    made = shop.folder / "repo"
    for words in (
        ("rpmbuild", "-bb", "--define", f"_topdir {shop.folder}/top", "--define", f"_rpmdir {made}", "owned.spec"),
        ("createrepo_c", "-q", str(made)),
    ):
        subprocess.run(words, cwd=shop.folder, check=True, capture_output=True)
    shop.write("argosy.toml", PROJECT.format(line=line))
    done = shop.argosy("build", "--build-backend", backend)
    assert done.code == 0, done.err
    shop.nothing_left(shop.folder / "out.sif")
    ran = shop.run(shop.folder / "out.sif", "sh", "-c", "owned; stat -c '%a %n' /usr/share/owned/*")
    assert ran.out == "owned\n640 /usr/share/owned/a\n644 /usr/share/owned/post\n", ran.err
