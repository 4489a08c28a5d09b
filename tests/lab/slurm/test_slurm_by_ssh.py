"""Jobs submitted, followed and ended from another machine, and images sent to it, through a real ssh."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.lab.far import reached_by_ssh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.lab.conftest import Ran
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

SHELL_THAT_TALKS = "echo welcome to the cluster\nexport SBATCH_TIMELIMIT=7\n"
TWO = ("--nodes", "2", "--ranks", "2", "--launcher", "srun")
TELL = ("python", "tell.py")
HOSTILE = ("two words", "$HOME `id` \\ ' \" !", "line\nargosy-end-of-text\nline", "", "*", "-x", "ü")


@dataclass(frozen=True, slots=True)
class Laptop:
    """A machine that reaches the cluster by ssh alone: the desk's folder is not what it works in."""

    desk: Desk
    node: str
    folder: str

    def argosy(self, *words: str, check: bool = True) -> Ran:
        """Type a command there."""
        env = {"HOME": self.folder, "ARGOSY_STATE": f"{self.folder}/state"}
        return self.desk.cluster.on(self.node, ["argosy", *words], cwd=self.folder, env=env, check=check)

    def sh(self, script: str) -> Ran:
        return self.desk.cluster.on(self.node, ["bash", "-euc", script], cwd=self.folder)

    def launch(self, *options: str, command: Sequence[str], check: bool = True) -> Ran:
        """Launch the image that lies in the desk's folder, from here."""
        far = ("--site", "site.toml", "--ssh", f"far:{self.desk.folder}")
        return self.argosy("launch", "image.sif", *far, *options, "--", *command, check=check)


@pytest.fixture
def laptop(desk: Desk) -> Iterator[Laptop]:
    cluster, node = desk.cluster, desk.cluster.nodes[-1]
    folder = f"/tmp/laptop-{desk.folder.rpartition('-')[2]}"  # noqa: S108 - the node's own
    with reached_by_ssh(cluster, "far"):
        cluster.sh(f"mkdir {folder}; cp {desk.site} {folder}/site.toml", node=node)
        desk.sh(f"cp {shlex.quote(desk.telling[1])} tell.py; ln -s {desk.image} image.sif")
        yield Laptop(desk, node, folder)
        cluster.sh(f"rm -rf {folder} ~/.bashrc", node=node)


def test_a_job_is_launched_and_followed_to_its_end_from_afar(laptop: Laptop) -> None:
    desk = laptop.desk
    said = laptop.launch(*TWO, "--output", "logs/%x-%j.out", "--follow", command=TELL)
    assert [row["rank"] for row in desk.told(said.stdout)] == [0, 1]
    job = said.stderr.split("job ")[-1].split()[0]
    assert f"job {job} ended well" in said.stderr
    assert list(desk.here.glob(f"logs/*-{job}.out")), "the folder here stands for the folder there"
    shown = json.loads(laptop.argosy("jobs", "show", job, "--json").stdout)
    assert [rank["rank"] for rank in shown["ranks"]] == [0, 1]
    assert shown["plan"]["shape"]["nodes"] == 2
    assert "2 on 2 nodes" in laptop.argosy("verify", job, check=False).stdout
    assert f"Job {job} finished with exit code 0" in laptop.argosy("report", job).stderr
    page = laptop.sh(f"cat job-{job}.html").stdout
    assert "2 on 2 nodes" in page
    assert "There is no output" not in page
    assert "&#34;rank&#34;" in page, "the output was copied"


def test_arguments_arrive_unchanged_whatever_the_remote_shell_prints_and_sets(laptop: Laptop) -> None:
    desk = laptop.desk
    laptop.sh(f"printf %s {shlex.quote(SHELL_THAT_TALKS)} > ~alice/.bashrc")
    words = (*HOSTILE, "x" * 20_000)
    near = desk.told(desk.follow(command=(*desk.telling, *words)).stdout)
    said = laptop.launch("--follow", command=(*TELL, *words))
    far = desk.told(said.stdout)
    assert [row["words"] for row in far] == [row["words"] for row in near]
    job = said.stderr.split("job ")[-1].split()[0]
    assert "TimeLimit=00:07:00" in desk.sh(f"scontrol show job {job}").stdout, "SBATCH_TIMELIMIT there is a default"


def test_a_running_job_is_entered_and_cancelled_from_afar(laptop: Laptop) -> None:
    desk = laptop.desk
    job = laptop.launch(command=("sh", "-c", "echo begun; exec sleep 300")).stdout.strip()
    desk.until_written(job, "begun")
    assert laptop.argosy("logs", job).stdout.startswith("begun")
    assert laptop.argosy("attach", job, "--", "printenv", "SLURM_JOB_ID").stdout.strip() == job
    assert laptop.argosy("jobs", "--ssh", "far").stdout.startswith(job)
    view = json.loads(laptop.argosy("top", job, "--json").stdout)
    assert [(rank["rank"], rank["state"]) for rank in view["ranks"]] == [(0, "idle")]
    assert view["last_line"] == "begun"
    laptop.argosy("cancel", job)
    desk.wait(job)
    assert laptop.argosy("logs", "-f", job, check=False).code != 0


def test_signatures_are_checked_on_the_machine_that_has_the_image(laptop: Laptop) -> None:
    sign = """
        rm -rf ~/.apptainer/keys
        apptainer --silent key newpair --name ada --email a@example.org --comment '' --password '' --push=false
        cp --remove-destination "$(readlink -f image.sif)" image.sif; apptainer --silent sign image.sif
        apptainer key list | sed -n 's/.*Fingerprint: *//p' | tail -n 1
    """
    key = laptop.desk.sh(sign).stdout.split()[-1]
    good = laptop.launch("--signed-by", key, "--follow", command=("echo", "it runs"))
    assert "it runs" in good.stdout
    other = laptop.launch("--signed-by", "0" * 40, command=("echo", "it runs"), check=False)
    assert other.code == 125
    assert f"signed by {key}, ada" in other.stderr
    assert "submitted" not in other.stderr


@pytest.mark.soak
def test_nodes_are_tried_from_afar(laptop: Laptop, torch_image: Path) -> None:
    image = laptop.desk.with_image(torch_image).image
    where = ("--ssh", f"far:{laptop.desk.folder}", "--site", "site.toml", "--nodes", "2")
    told = laptop.argosy("bench", "nodes", image, *where, "--gpu", "none", "--follow", check=False)
    assert "2 nodes" in told.stdout, told.stderr


@pytest.mark.soak
def test_a_sweep_over_numbers_of_nodes_is_measured_from_afar(laptop: Laptop, torch_image: Path) -> None:
    image = laptop.desk.with_image(torch_image).image
    where = ("--ssh", f"far:{laptop.desk.folder}", "--site", "site.toml", "--gpu", "none", "--ranks-per-node", "2")
    sweep = ("bench", "collectives", image, *where, "--nodes", "1,2", "--max-size", "1M")
    said = laptop.argosy(*sweep, "--follow", check=False)
    assert said.code == 0, said.stderr
    table = said.stdout[said.stdout.rindex("nodes") :]
    assert [line.split()[0] for line in table.splitlines()[1:3]] == ["1", "2"]
    jobs = re.findall(r"job (\d+) ended well", said.stderr)
    assert len(jobs) == 2
    compared = json.loads(laptop.argosy("bench", "compare", jobs[1], "--json").stdout)
    assert {figure["nodes"] for figure in compared[0]["figures"]} == {1, 2}


def test_all_tasks_of_an_array_are_followed_from_afar(laptop: Laptop) -> None:
    said = laptop.launch("--array", "1-2", "--follow", command=("sh", "-c", "echo task $SLURM_ARRAY_TASK_ID"))
    assert {line for line in said.stdout.splitlines() if line.startswith("task")} == {"task 1", "task 2"}


def test_a_failed_job_names_the_rank_that_failed_first(laptop: Laptop) -> None:
    said = laptop.launch(*TWO, "--follow", command=("sh", "-c", 'test "$SLURM_PROCID" = 0 || exit 7'), check=False)
    assert said.code == 7
    assert "rank 1" in said.stderr


def test_a_smoke_run_comes_first_from_afar_too(laptop: Laptop) -> None:
    said = laptop.launch("--smoke-first", "--follow", command=("echo", "it runs"))
    assert said.stdout.count("it runs") == 2
    bad = laptop.launch("--smoke-first", "--follow", command=("false",), check=False)
    assert bad.code == 1
    assert laptop.argosy("jobs", "--ssh", "far").stdout == "you have no waiting or running jobs\n"


REFUSED = (
    (("--ssh", "nowhere"), "cannot connect to nowhere by ssh"),
    (("--ssh", "far:/nodir"), "no such folder on far: /nodir"),
    (("--ssh", "far:"), "argosy images send image.sif far:/home/alice"),
    (("--ssh", "-oProxyCommand=touch"), "invalid ssh destination"),
    (("--partition", "none"), "Invalid partition"),
    (("--chdir", "none"), "/none to run in"),
    (("--site", "local"), "select the profile of the cluster with --site"),
    (("--in-allocation",), "run the script that --dry-run prints"),
)


def test_impossible_options_are_refused(laptop: Laptop) -> None:
    for options, told in REFUSED:
        said = laptop.launch(*options, command=("true",), check=False)
        assert said.code == 125, options
        assert told in said.stderr
        assert "Traceback" not in said.stderr


def test_an_interactive_login_is_refused_without_waiting(laptop: Laptop) -> None:
    laptop.sh("mv ~alice/.ssh/id ~alice/.ssh/none")
    said = laptop.launch(command=("true",), check=False)
    assert said.code == 125
    assert "Permission denied" in said.stderr
    assert "without a password prompt: ssh far true" in said.stderr


def test_a_dry_run_shows_the_script_and_writes_nothing_there(laptop: Laptop) -> None:
    before = laptop.desk.sh("find . ~/.local 2> /dev/null | sort").stdout
    said = laptop.launch("--dry-run", "-B", "data:/data", command=("python", "x.py"))
    assert f"{laptop.desk.folder}/image.sif" in said.stdout
    assert f"{laptop.desk.folder}/data:/data" in said.stdout
    assert laptop.desk.sh("find . ~/.local 2> /dev/null | sort").stdout == before


def test_an_image_is_sent_without_the_base_that_is_there(laptop: Laptop) -> None:
    desk = laptop.desk
    laptop.sh(f"cp {desk.folder}/image.sif 'my image.sif'")
    place = f"far:{desk.folder}/it's there"
    refused = laptop.argosy("images", "send", "my image.sif", f"{place}/", check=False)
    assert refused.code == 2
    assert "create it: ssh far 'mkdir -p -- " in refused.stderr
    desk.sh('mkdir "it\'s there"; echo other > "it\'s there/other.sif"')
    first = json.loads(laptop.argosy("images", "send", "my image.sif", place, "--json").stdout)
    assert first["sent"] == first["bytes"]
    second = json.loads(laptop.argosy("images", "send", "my image.sif", f"{place}/second.sif", "--json").stdout)
    assert second["sent"] < second["bytes"] / 2
    assert second["base_from"].endswith("my image.sif")
    desk.sh('cmp image.sif "it\'s there/my image.sif"; cmp image.sif "it\'s there/second.sif"')
    named = ("--base", "my image.sif", "--json")
    third = json.loads(laptop.argosy("images", "send", "my image.sif", f"{place}/third.sif", *named).stdout)
    assert third["base_from"] == second["base_from"], "a base is named from the folder that the image goes to"
    again = json.loads(laptop.argosy("images", "send", "my image.sif", f"{place}/second.sif", "--json").stdout)
    assert again["sent"] == 0
    taken = laptop.argosy("images", "send", "my image.sif", f"{place}/other.sif", check=False)
    assert taken.code == 2
    assert "--force" in taken.stderr
    assert desk.sh('cat "it\'s there/other.sif"').stdout == "other\n"


def test_a_different_base_is_detected_and_the_whole_file_is_sent(laptop: Laptop) -> None:
    desk = laptop.desk
    laptop.sh(f"cp {desk.folder}/image.sif mine.sif")
    damage = "printf damaged | dd of=other bs=1 seek=1000000 conv=notrunc status=none"
    desk.sh(f"cp image.sif other; {damage}; mv -f other image.sif")
    said = laptop.argosy("images", "send", "mine.sif", f"far:{desk.folder}/new.sif")
    assert "sending the whole file" in said.stderr
    sums = desk.sh(f"sha256sum < new.sif; sha256sum < {desk.image}; ls -A").stdout.splitlines()
    assert sums[0] == sums[1]
    assert not [name for name in sums if name.endswith(".part")]
