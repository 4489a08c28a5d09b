"""Quotas are read from what the command of each file system prints."""

from __future__ import annotations

import pytest

from argosy.host.quota import Quota, parse_quotas, quota_command

LUSTRE = """\
Disk quotas for usr ada (uid 1000):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/scratch/project_465000001
                 30680*  30720   30920 6d23h59m22s  10101* 10000   11000       -
     /users/ada [1024]       0       0       -     12       0       0       -
ada is using default block quota setting
"""
GPFS = """\
mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:blockLimit:\
blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:filesGrace:remarks:
mmlsquota::0:1:::gpfs_home:USR:1000:ada:81920:83886080:88080384:0:none:1200:0:0:0:none::
mmlsquota::0:1:::gpfs_apps:USR:1000:ada:no limits:
"""
PLAIN = """\
Disk quotas for user ada (uid 1000): 
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs.example.org:/home  4000000* 4000000 4200000 1790000000   90000       0       0       0
"""  # noqa: W291 - as quota prints it
NONE = "Disk quotas for user root (uid 0): none\n"


def test_lustre_breaks_lines_and_marks_what_is_over_or_not_exact() -> None:
    scratch, home = parse_quotas("lustre", LUSTRE)
    assert scratch == Quota("/scratch/project_465000001", 30680 * 1024, 30720 * 1024, 10101, 10000)
    assert scratch.share > 1
    assert home == Quota("/users/ada", 1024 * 1024, 0, 12, 0)
    assert home.share == 0


def test_spectrum_scale_names_its_fields() -> None:
    (home,) = parse_quotas("gpfs", GPFS)
    assert home == Quota("gpfs_home", 81920 * 1024, 83886080 * 1024, 1200, 0)


def test_other_file_systems_answer_in_the_columns_of_quota() -> None:
    (home,) = parse_quotas("nfs4", PLAIN)
    assert (home.place, home.limit, home.share) == ("nfs.example.org:/home", 4000000 * 1024, 1.0)


@pytest.mark.parametrize("text", ["", NONE, "lfs: quota: Permission denied\n", "a b c d e f g h i\n"])
@pytest.mark.parametrize("kind", ["lustre", "gpfs", "ext4"])
def test_a_reply_without_a_quota_gives_no_quota(kind: str, text: str) -> None:
    assert parse_quotas(kind, text) == ()


def test_each_file_system_has_its_command() -> None:
    assert quota_command("lustre", "ada", "/scratch/x") == ("lfs", "quota", "-u", "ada", "/scratch/x")
    assert quota_command("gpfs", "ada", "/home/ada")[0] == "mmlsquota"
    assert quota_command("nfs4", "ada", "/home/ada") == ("quota", "-w", "-p")
