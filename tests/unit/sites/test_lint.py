"""Lint: every planted mistake is found by its rule, and what is right stays unmentioned."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from argosy.cli.__main__ import run_app
from argosy.core.findings import render_findings
from argosy.launch.launchers.launcher import LAUNCHERS
from argosy.sites.lint.known_variables import FAMILIES, KNOWN
from argosy.sites.lint.profile_rules import PROFILE_RULES, lint_named_profile, lint_profile
from argosy.sites.lint.rule import Script, count_gpus
from argosy.sites.lint.script_rules import SCRIPT_RULES, lint_script, meant_variable
from argosy.sites.lint.site_rules import SITE_RULES
from argosy.sites.lint.value_rules import LAUNCHER_NAMES
from argosy.sites.read import DATA, read_site, site_names

GOLDEN = Path(__file__).parents[2] / "golden"
TODAY = dt.date(2026, 11, 20)

HEAD = """\
#!/bin/bash
#SBATCH --account=project_1
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=00:15:00
export NCCL_SOCKET_IFNAME=hsn
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
"""
GOOD = HEAD + 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" singularity exec x.sif python train.py\n'
MASKS = "fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"

SCRIPTS = (
    ("misspelt-variable", "export NCCL_SOCKET_IFNAMES=hsn"),
    ("misspelt-variable", "export ZE_FLAT_DEVICE_HIERARCY=FLAT"),
    ("misspelt-variable", "export MIOPEN_USER_DB=/tmp/x"),
    ("misspelt-variable", "export FI_CXI_DISABEL_HOST_REGISTER=1"),
    ("misspelt-variable", "export CCL_ATL_TRANSPROT=ofi"),
    ("misspelt-variable", "export UCX_NET_DEVICE=mlx5_0:1"),
    ("misspelt-variable", "export NCLL_DEBUG=INFO"),
    ("misspelt-variable", "export APPTAINERENV_NCCL_DEBGU=INFO"),
    ("misspelt-variable", "NCCL_CROS_NIC=1 python train.py"),
    ("fixed-port", "export MASTER_PORT=29500"),
    ("fixed-port", 'torchrun --rdzv_endpoint="$MASTER_ADDR:29500" train.py'),
    ("fixed-port", "torchrun --master-port 6000 train.py"),
    ("ephemeral-port", "export MASTER_PORT=$((50000 + SLURM_JOB_ID % 10000))"),
    ("ephemeral-port", "MASTER_PORT=33333"),
    ("task-variable", "export LOCAL_RANK=$SLURM_LOCALID"),
    ("task-variable", "export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID"),
    ("node-rank", 'srun -c 7 bash -c "torchrun --node_rank $SLURM_PROCID train.py"'),
    ("literal-rendezvous-id", "srun -c 7 bash -c 'torchrun --rdzv_id=\\$SLURM_JOB_ID train.py'"),
    ("cores-not-repeated", "srun singularity exec x.sif python train.py"),
    ("mask-with-cores", f"srun -c 7 --cpu-bind=mask_cpu:{MASKS} python train.py"),
    ("mask-with-cores", "srun --cpus-per-task=7 --cpu-bind=map_cpu:49,57,17,25,1,9,33,41 python train.py"),
    ("cache-on-first-node", "export MIOPEN_USER_DB_PATH=/tmp/cache\nmkdir -p /tmp/cache"),
    ("cache-on-first-node", "export MIOPEN_USER_DB_PATH=$(mktemp -d)"),
    ("c10d-order", "srun -c 7 torchrun --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT train.py"),
    ("versioned-library", "export APPTAINER_BINDPATH=/usr/lib64/libmlx5.so.1.25.58.0"),
    ("gdr-phb", "export NCCL_NET_GDR_LEVEL=PHB"),
    ("plugin-twice", 'export NCCL_NET="AWS Libfabric" NCCL_NET_PLUGIN=ofi'),
    ("memhooks", "export FI_MR_CACHE_MONITOR=memhooks"),
    ("fast-path-off", "export NCCL_IB_DISABLE=1"),
    ("fast-path-off", "export NCCL_P2P_DISABLE=1"),
    ("blocking-launch", "export CUDA_LAUNCH_BLOCKING=1"),
    ("stray-backslash", "srun -c 7 \\\n\n  python train.py"),
    ("stray-backslash", "srun -c 7 python x.py \\\n  # --a \\\n  --b"),
    ("stray-backslash", "srun -c 7 \\ \n  python train.py"),
    ("late-directive", "#SBATCH --mem=480G"),
    ("wrong-gpu-option", "srun -c 7 singularity exec --nv x.sif python train.py"),
    ("site-advice", "srun -c 7 --gpus-per-task=1 python train.py"),
    ("site-advice", "srun -c 7 --gpu-bind=closest python train.py"),
    ("site-advice", "srun -c 7 singularity exec --rocm x.sif python train.py"),
    ("mask-off-the-map", "srun --cpu-bind=mask_cpu:ff,ff00 python train.py"),
    ("build-with-binds", "module load singularity-AI-bindings\nsingularity build x.sif x.def"),
)
"""Rule, and the line that is planted at the end of the script."""

CHANGES = (
    ("misspelt-option", "--account=", "--acount="),
    ("misspelt-option", "--gpus-per-node=8", "--gpu-per-node=8"),
    ("variable-in-directive", "--account=project_1", "--output=$HOME/out.txt"),
    ("hash-in-directive", "--nodes=2", "--nodes=2\n#SBATCH --container-image=nvcr.io#nvidia/pytorch:24.03-py3"),
    ("carriage-returns", "\n", "\r\n"),
    ("byte-order-mark", "#!/bin/bash", "\ufeff#!/bin/bash"),
    ("typographic-dash", "#SBATCH --nodes=2", "#SBATCH \u2013-nodes=2"),
    ("export-none", "--nodes=2", "--nodes=2\n#SBATCH --export=NONE"),
    ("ofi-on-one-node", "--nodes=2", "--nodes=1\nexport NCCL_NET=OFI"),
    ("required-option", "#SBATCH --account=project_1\n", ""),
    ("limit", "--time=00:15:00", "--time=3-00:00:00"),
    ("limit", "--partition=standard-g\n#SBATCH --nodes=2", "--partition=small-g\n#SBATCH --nodes=5"),
    ("billed-whole", "--gpus-per-node=8", "--gpus-per-node=2"),
    ("too-many-cores", "--cpus-per-task=7", "--cpus-per-task=8"),
    ("mask-on-part", "standard-g", f"small-g\nsrun --cpu-bind=mask_cpu:{MASKS} python x.py"),
    ("missing-setting", "export NCCL_SOCKET_IFNAME=hsn\n", ""),
    ("site-advice", "--nodes=2", "--nodes=2\n#SBATCH --mem=0"),
)
"""Rule, and what in the good script is replaced by what."""

PROFILE = """\
name = "x"
title = "X"
scheduler = "slurm"
checked = "2026-11-20"
open_questions = ["everything else"]

[identity]
not_detected = "no page names the hosts"

[node]
cores = 8
reserved = "0"
gpus = 2
gpu_vendor = "amd"
gpu_cpus = ["1-3", "4-7"]
source = "https://example.org/node"

[slurm]
required = ["account"]
source = "https://example.org/slurm"

[[settings]]
name = "NCCL_SOCKET_IFNAME"
value = "hsn0"
why = "RCCL finds it"
source = "https://example.org/nccl"
"""
PART = '\n[[settings]]\nname = "{}"\nvalue = "{}"\nwhy = "w"\nsource = "https://example.org"\n'
PARTITION = '\n[[partitions]]\nname = "p"\nsource = "https://example.org"\n'
BIND = '\n[[binds]]\npaths = ["{}"]\nwhy = "w"\nsource = "https://example.org"\n'

DETECTION = 'not_detected = "no page names the hosts"'


def part(name: str, keys: str) -> str:
    """Return a table or, for a name in brackets, a row of a list, above the table [slurm]."""
    return f'\n[{name}]\n{keys}\nwhy = "w"\nsource = "https://example.org"\n\n[slurm]'


TWO_WORDS = """
[[options]]
to = "srun"
word = "--x"
why = "w"
source = "https://example.org"

[[avoid]]
word = "--x"
why = "w"
source = "https://example.org"

[slurm]"""

PROFILES = (
    ("no-source", 'source = "https://example.org/nccl"', ""),
    ("no-source", '"https://example.org/nccl"', '"a colleague"'),
    ("no-reason", 'why = "RCCL finds it"', ""),
    ("stale", "2026-11-20", "2024-11-20"),
    ("stale", "2026-11-20", "2031-01-01"),
    ("stale", "2026-11-20", "last spring"),
    ("stale", 'checked = "2026-11-20"', ""),
    ("wrong-map", '"1-3"', '"0-3"'),
    ("wrong-map", '"1-3"', '"1-4"'),
    ("wrong-map", '["1-3", "4-7"]', '["1-3"]'),
    ("wrong-map", "gpus = 2", "gpus = 2\ngpu_numa = [0]"),
    ("threads-as-cores", "gpus = 2", "gpus = 2\nthreads_per_core = 2"),
    ("threads-as-cores", "cores = 8", "cores = 16"),
    ("slingshot-without-plugin", "gpus = 2", 'gpus = 2\nnic = "Slingshot 11"'),
    ("misspelt-variable", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAMES"),
    ("gdr-phb", "\n[slurm]", PART.format("NCCL_NET_GDR_LEVEL", "PHB") + "\n[slurm]"),
    ("ofi-on-one-node", "\n[slurm]", PART.format("NCCL_NET", "OFI") + "\n[slurm]"),
    ("fixed-port", "\n[slurm]", PART.format("MASTER_PORT", "29500") + "\n[slurm]"),
    ("mask-with-cores", "[slurm]\n", "[slurm]\nmask_needs_whole_nodes = true\n"),
    (
        "own-advice",
        "\n[slurm]",
        TWO_WORDS,
    ),
    ("set-twice", "\n[slurm]", PART.format("NCCL_SOCKET_IFNAME", "hsn1") + "\n[slurm]"),
    ("odd-path", "\n[slurm]", BIND.format("/opt/$(id)/*") + "\n[slurm]"),
    (
        "odd-path",
        "\n[slurm]",
        '\n[[caches]]\nvariables = ["A"]\npath = "/scratch/{user}"\nwhy = "w"\nsource = "https://e.org"\n\n[slurm]',
    ),
    (
        "unknown-condition",
        "\n[slurm]",
        PARTITION + PART.format("A", "1") + 'when = { partition = "q" }\n\n[slurm]',
    ),
    ("unknown-condition", "\n[slurm]", '\n[modes.a]\nwhy = "w"\nsource = "https://e.org"\n\n[slurm]'),
    (
        "avoided-default",
        "\n[slurm]",
        '\n[launcher]\ndefault = "srun"\navoid = ["srun"]\nsource = "https://e.org"\n\n[slurm]',
    ),
    ("wrong-gpu-mode", "\n[slurm]", '\n[runtime]\nname = "apptainer"\ngpu = "nv"\nsource = "https://e.org"\n\n[slurm]'),
    ("unknown-name", "\n[slurm]", '\n[runtime]\nname = "aptainer"\nsource = "https://e.org"\n\n[slurm]'),
    ("unknown-name", "gpus = 2", 'gpus = 2\narch = "amd64"'),
    ("impossible-partition", "\n[slurm]", PARTITION + "min_nodes = 5\nmax_nodes = 2\n\n[slurm]"),
    ("impossible-partition", "\n[slurm]", PARTITION + PARTITION + "\n[slurm]"),
    ("undated-proof", 'checked = "2026-11-20"\n', 'checked = ""\n'),
    ("no-detection", 'not_detected = "no page names the hosts"\n', ""),
    ("no-questions", 'open_questions = ["everything else"]\n', ""),
    (
        "edited-proof",
        "\n[slurm]",
        '\n[node.proofs]\ncores = "2026-11-20, job 7"\n\n[validated.facts]\n"node.cores" = "4"\n\n[slurm]',
    ),
    ("other-name", 'name = "x"', 'name = "y"'),
    ("reserved-cores", 'reserved = "0"', 'reserved = "0,8,16"'),
    ("reserved-cores", 'reserved = "0"', 'reserved = "0;8"'),
    ("reserved-cores", 'reserved = "0"', 'reserved = "0-7"'),
    ("uneven-node", "cores = 8", "cores = 8\nsockets = 3"),
    ("uneven-node", "cores = 8", "cores = 8\nnuma = 3"),
    ("uneven-node", "cores = 8", "cores = 8\nnuma = 2\ngpu_numa = [1, 2]"),
    ("cores-per-gpu", "[slurm]\n", "[slurm]\ncpus_per_gpu = 64\n"),
    ("cores-per-gpu", "\n[slurm]", PARTITION + "cores = 4\ncpus_per_gpu = 16\n\n[slurm]"),
    ("wrong-vendor", 'gpu_vendor = "amd"\n', ""),
    ("wrong-vendor", 'gpus = 2\ngpu_vendor = "amd"\ngpu_cpus = ["1-3", "4-7"]', 'gpu_vendor = "amd"'),
    ("wrong-vendor", "cores = 8", 'cores = 8\ncuda = "12.8"'),
    ("wrong-vendor", 'gpu_vendor = "amd"', 'gpu_vendor = "nvidia"\nrocm = "6.4"'),
    ("wrong-vendor", 'scheduler = "slurm"', 'scheduler = "slurm"\nuse = ["slingshot-nvidia"]'),
    ("wrong-unit", "cores = 8", "cores = 8\nmemory_mb = 256"),
    ("wrong-unit", "cores = 8", "cores = 8\ngpu_memory_gb = 81920"),
    ("wrong-unit", "cores = 8", "cores = 8\nnic_gbit = 200000"),
    ("network-without-nic", 'scheduler = "slurm"', 'scheduler = "slurm"\nuse = ["slingshot-amd"]'),
    ("no-scheduler", 'scheduler = "slurm"\n', ""),
    ("invalid-amount", "[slurm]\n", '[slurm]\nmem = "lots"\n'),
    ("invalid-amount", "[slurm]\n", '[slurm]\nmem = "480"\n'),
    ("invalid-amount", "[slurm]\n", '[slurm]\nmem_per_gpu = "60 GB"\n'),
    ("invalid-amount", "\n[slurm]", part("build", 'mem = "64GiB"')),
    ("invalid-amount", "\n[slurm]", part("build", 'time = "half an hour"')),
    ("short-time", "\n[slurm]", PARTITION + 'max_time = "24"\n\n[slurm]'),
    ("short-time", "\n[slurm]", PARTITION + 'max_time = "48:00"\n\n[slurm]'),
    (
        "impossible-partition",
        "\n[slurm]",
        PARTITION + 'max_time = "1:00:00"\ntime_by_nodes = { 4 = "2:00:00" }\n\n[slurm]',
    ),
    ("several-words", "\n[slurm]", part("[options]", 'to = "sbatch"\nword = "--qos gpu"')),
    ("several-words", "\n[slurm]", part("[options]", 'to = "srun"\nword = "--mpi=pmix --label"')),
    ("several-words", "\n[slurm]", part("[options]", 'to = "sbatch"\nword = "qos=gpu"')),
    ("several-words", "\n[slurm]", part("[options]", 'to = "annotation"\nword = "com.hooks.x"')),
    ("several-words", "\n[slurm]", part("[avoid]", 'word = "--mem 0"')),
    ("several-names", "\n[slurm]", part("modules", 'load = ["module load singularity"]')),
    ("several-names", "\n[slurm]", part("modules", 'load = ["singularity gcc/12"]')),
    ("several-names", "\n[slurm]", part("modules", 'load = ["singularity,gcc/12"]')),
    ("several-names", "\n[slurm]", part("build", 'unload = ["a b"]')),
    ("several-names", "[slurm]\n", '[slurm]\ndebug_qos = "debug gpu"\n'),
    ("several-names", "[slurm]\n", '[slurm]\naccount_form = "astro1: letters and a number"\n'),
    ("relative-path", "\n[slurm]", part("images", 'folders = ["images"]')),
    ("relative-path", "\n[slurm]", part("images", 'folders = ["~/images"]')),
    ("relative-path", "\n[slurm]", part("images", 'enter = { "images/*.sif" = "run" }')),
    ("relative-path", "\n[slurm]", part("modules", 'use = ["mods"]\nload = ["a"]')),
    ("relative-path", "\n[slurm]", part("build", 'work_dir = "tmp"')),
    ("relative-path", "\n[slurm]", part("[images.bases]", 'name = "a"\nconda = "opt/conda"')),
    ("relative-path", "\n[slurm]", part("modes.a", 'default = true\nimages = ["x/*"]')),
    ("relative-path", "cores = 8", 'cores = 8\ngpu_device = "nvidia0"'),
    ("not-expanded", "\n[slurm]", PART.format("X", "/x/$USER") + "\n[slurm]"),
    ("not-expanded", "\n[slurm]", PART.format("X", "/x/{user}") + "\n[slurm]"),
    ("not-expanded", "\n[slurm]", PART.format("X", "~/x") + "\n[slurm]"),
    ("not-expanded", "\n[slurm]", part("[settings]", 'name = "X"\nlate = "/x/$USER"')),
    ("not-expanded", "\n[slurm]", part("[caches]", 'variables = ["A"]\npath = "/x/$USER"')),
    ("shared-cache", "\n[slurm]", part("[caches]", 'variables = ["A"]\npath = "/tmp/triton"')),
    ("shared-cache", "\n[slurm]", part("[caches]", 'variables = ["A"]\npath = "/tmp/{user}/triton"')),
    ("not-expanded", "\n[slurm]", BIND.format("/scratch/$USER") + "\n[slurm]"),
    ("no-value", "\n[slurm]", part("[settings]", 'name = "X"')),
    ("odd-path", "\n[slurm]", BIND.format("/scratch:/data") + "\n[slurm]"),
    ("odd-path", "\n[slurm]", BIND.format("/scratch,/home") + "\n[slurm]"),
    ("odd-path", "\n[slurm]", BIND.format("/scratch /home") + "\n[slurm]"),
    ("never-detected", DETECTION, 'hosts = ["uan01.lumi.csc.fi"]\nsource = "https://e.org"'),
    ("never-detected", DETECTION, 'hosts = ["uan[01-04]"]\nsource = "https://e.org"'),
    ("never-detected", DETECTION, 'clusters = ["LUMI "]\nsource = "https://e.org"'),
    ("never-detected", DETECTION, 'variables = { "$NERSC_HOST" = "p" }\nsource = "https://e.org"'),
    ("detected-everywhere", DETECTION, 'hosts = ["*"]\nsource = "https://e.org"'),
    ("unknown-name", "\n[slurm]", part("launcher", 'avoid = ["torchurn"]')),
    (
        "misspelt-partition",
        "\n[slurm]",
        PARTITION.replace('"p"', '"standard"') + part("build", 'partition = "standrad"'),
    ),
    (
        "misspelt-partition",
        "\n[slurm]",
        PARTITION.replace('"p"', '"standard"') + part("[options]", 'to = "sbatch"\nword = "--partition=standrad"'),
    ),
    ("unknown-name", "\n[slurm]", part("build", 'variables = { "A B" = "1" }')),
    ("unknown-evidence", "\n[slurm]", '\n[node.sources]\ngpu_cpu = "https://e.org"\n\n[slurm]'),
    ("unknown-evidence", "\n[slurm]", '\n[node.proofs]\ngpu_cpu = "2026-11-20, job 3"\n\n[slurm]'),
    ("invalid-pattern", "\n[slurm]", part("network", "proof_lines = ['NET/(OFI']")),
    ("not-a-version", "[slurm]\n", '[slurm]\nversion = "slurm 24.05"\n'),
    ("not-a-version", "\n[slurm]", part("runtime", 'name = "apptainer"\nversion = "v1.3"')),
    ("unknown-condition", "\n[slurm]", PART.format("X", "1") + 'when = { mode = "cray" }\n\n[slurm]'),
    ("unknown-condition", "\n[slurm]", PART.format("X", "1") + 'when = { vendor = "AMD" }\n\n[slurm]'),
    ("unknown-condition", "\n[slurm]", PART.format("X", "1") + 'when = { launcher = "mpirun" }\n\n[slurm]'),
    ("unknown-condition", "\n[slurm]", PART.format("X", "1") + 'when = { runtime = "aptainer" }\n\n[slurm]'),
    ("unknown-condition", "\n[slurm]", PART.format("X", "1") + 'when = { whole_nodes = "true" }\n\n[slurm]'),
    ("unknown-condition", "\n[slurm]", PART.format("X", "1") + 'when = { nodes = "many" }\n\n[slurm]'),
)
"""Rule, and what in the good profile is replaced by what."""


def rules_found(text: str, site: str = "lumi-g") -> set[str]:
    return {finding.what for finding in lint_script("job.sh", text, read_site(site))}


def profile_rules(folder: Path, text: str) -> set[str]:
    path = folder / "x.toml"
    path.write_text(text)
    return {finding.what for finding in lint_profile(str(path), text, read_site(str(path)), TODAY)}


def test_a_good_script_is_not_mentioned() -> None:
    assert lint_script("job.sh", GOOD, read_site("lumi-g")) == ()


@pytest.mark.parametrize(("rule", "line"), SCRIPTS)
def test_a_planted_line_is_found(rule: str, line: str) -> None:
    assert rule in rules_found(GOOD + line + "\n")


@pytest.mark.parametrize(("rule", "old", "new"), CHANGES)
def test_a_planted_change_is_found(rule: str, old: str, new: str) -> None:
    assert old in GOOD
    assert rule in rules_found(GOOD.replace(old, new))


def test_a_good_profile_is_not_mentioned(tmp_path: Path) -> None:
    assert profile_rules(tmp_path, PROFILE) == set()


@pytest.mark.parametrize(("rule", "old", "new"), PROFILES)
def test_a_mistake_in_a_profile_is_found(tmp_path: Path, rule: str, old: str, new: str) -> None:
    assert old in PROFILE
    text = PROFILE.replace(old, new, 1)
    if rule == "undated-proof":
        text = text.replace('name = "NCCL', 'proof = "validated"\nname = "NCCL')
    assert rule in profile_rules(tmp_path, text)


def write_profile(folder: Path, text: str, name: str = "x.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_an_invalid_profile_has_a_finding_for_each_fault_and_what_to_write(tmp_path: Path) -> None:
    text = PROFILE.replace("cores = 8", 'cores = "8"').replace('"amd"', '"AMD"').replace("[slurm]", "[slurm]\nmen = 1")
    found = lint_named_profile(write_profile(tmp_path, text), (DATA,))
    assert [(each.line, each.what, each.evidence.partition(":")[0]) for each in found] == [
        (11, "invalid-profile", "node.cores"),
        (14, "invalid-profile", "node.gpu_vendor"),
        (19, "invalid-profile", "slurm.men"),
    ]
    assert [each.hint for each in found] == [
        "write cores = 8, without quotes",
        "did you mean 'amd'?",
        "did you mean 'mem'?",
    ]
    assert "sites lint" not in render_findings(found)


def test_the_faults_of_a_fragment_are_found_in_its_file(tmp_path: Path) -> None:
    fragment = write_profile(tmp_path, '[node]\ncores = "8"\ngpus = "2"\n', "_part.toml")
    found = lint_named_profile(write_profile(tmp_path, 'use = ["part"]\n' + PROFILE), (DATA,))
    assert [(each.path, each.line) for each in found] == [(fragment, 2), (fragment, 3)]


@pytest.mark.parametrize(
    ("text", "line", "evidence"),
    [
        ("name = x\n", 1, "is not valid TOML: "),
        ('name = "x"\nuse = ["prt"]\n', 2, "cannot find the fragment or site 'prt': use; known: "),
        ('name = "x"\nuse = ["x"]\n', 2, "x -> x: use"),
        ('name = "x"\n', 0, "it has no title"),
    ],
)
def test_what_cannot_be_read_is_a_finding_too(tmp_path: Path, text: str, line: int, evidence: str) -> None:
    (found,) = lint_named_profile(write_profile(tmp_path, text), (DATA,))
    assert (found.path, found.line) == (str(tmp_path / "x.toml"), line)
    assert evidence in found.evidence
    assert found.hint


def test_one_invalid_profile_does_not_keep_the_others_from_being_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "argosy-sites").mkdir()
    write_profile(tmp_path / "argosy-sites", 'name = "a"\ntitle = 3\n', "a.toml")
    write_profile(tmp_path / "argosy-sites", 'name = "c"\ntitle = "b"\n', "b.toml")
    assert run_app(["sites", "lint"]) == 7
    out = capsys.readouterr().out
    assert "argosy-sites/a.toml:2: fail: title: expected text" in out
    assert "[other-name]" in out


HINTS = (
    ('mem = "480"', 'use mem = "480G" for gigabytes; use mem = "480M" if you mean megabytes'),
    ('mem = "lots"', 'for example: mem = "60G"'),
)


@pytest.mark.parametrize(("key", "hint"), HINTS)
def test_the_hint_of_an_amount_is_a_line_of_a_profile(tmp_path: Path, key: str, hint: str) -> None:
    text = PROFILE.replace("[slurm]\n", f"[slurm]\n{key}\n")
    (found,) = lint_profile("x.toml", text, read_site(write_profile(tmp_path, text)), TODAY)
    assert (found.line, found.hint) == (19, hint)


CORRECT = (
    ("\n[slurm]", part("[options]", 'to = "sbatch"\nword = "--comment=two words"')),
    ("\n[slurm]", part("[options]", 'to = "runtime"\nword = "--writable-tmpfs"')),
    ("\n[slurm]", part("[avoid]", 'word = "NCCL_DEBUG=TRACE"')),
    ("\n[slurm]", part("images", 'folders = ["$PROJECT/images", "/images"]')),
    ("\n[slurm]", part("images", 'enter = { "docker://nvcr.io/*" = "run", "/images/*" = "run" }')),
    ("\n[slurm]", part("modules", 'load = ["gcc/12.3", "rocm@6.2+x", "/apps/mods/x"]')),
    ("\n[slurm]", PARTITION + part("build", 'partition = "debug"')),
    ("\n[slurm]", part("[settings]", 'name = "X"\nvalue = ""')),
    ("\n[slurm]", part("[settings]", 'name = "X"\nvalue = "{a} costs 5$ ~"')),
    ("\n[slurm]", part("[settings]", 'name = "X"\nvalue = "1"\nwhen = { vendor = "none | amd", nodes = "> 1" }')),
    ("\n[slurm]", part("build", 'time = "0:30:00"\nmem = "64G"')),
    ("[slurm]\n", "[slurm]\ncpus_per_gpu = 7\n"),
    (DETECTION, 'hosts = ["uan[0-9]*"]\nsource = "https://e.org"'),
    ("cores = 8", "cores = 8\nmemory_mb = 16000\nnic_gbit = 400\ngpu_memory_gb = 192\nsockets = 2\nnuma = 4"),
)
"""Correct values that look like one of the mistakes."""


@pytest.mark.parametrize(("old", "new"), CORRECT)
def test_correct_values_give_no_finding(tmp_path: Path, old: str, new: str) -> None:
    assert old in PROFILE
    assert profile_rules(tmp_path, PROFILE.replace(old, new, 1)) == set()


def test_a_plugin_without_a_nic_is_fine_if_the_question_is_open(tmp_path: Path) -> None:
    text = PROFILE.replace('scheduler = "slurm"', 'scheduler = "slurm"\nuse = ["slingshot-amd"]')
    assert profile_rules(tmp_path, text) == {"network-without-nic"}
    assert profile_rules(tmp_path, text.replace("everything else", "type of the network cards")) == set()
    assert profile_rules(tmp_path, text.replace("gpus = 2", 'gpus = 2\nnic = "Slingshot 11"')) == set()


def test_threads_are_no_fault_if_slurm_counts_cores(tmp_path: Path) -> None:
    option = '[[options]]\nto = "sbatch"\nword = "--threads-per-core=1"\nwhy = "w"\nsource = "https://e.org"\n\n[slurm]'
    text = PROFILE.replace("gpus = 2", "gpus = 2\nthreads_per_core = 2").replace("[slurm]", option)
    assert profile_rules(tmp_path, text) == set()
    one = PROFILE.replace("cores = 8", "cores = 16\nthreads_per_core = 1")
    assert profile_rules(tmp_path, one) == set()


def test_every_rule_has_a_planted_mistake() -> None:
    planted = {row[0] for row in (*SCRIPTS, *CHANGES, *FOUND)}
    assert {rule.name for rule in (*SCRIPT_RULES, *SITE_RULES)} <= planted
    assert {rule.name for rule in PROFILE_RULES} <= {row[0] for row in PROFILES}


def test_at_least_forty_mistakes_are_planted() -> None:
    assert len(SCRIPTS) + len(CHANGES) + len(PROFILES) >= 40


@pytest.mark.parametrize("name", site_names())
def test_shipped_profiles_are_not_mentioned(name: str) -> None:
    path = DATA / f"{name}.toml"
    text = path.read_text()
    newest = max(map(dt.date.fromisoformat, re.findall(r"\b\d{4}-\d\d-\d\d\b", text)), default=TODAY)
    found = lint_profile(str(path), text, read_site(name), max(TODAY, newest))
    assert [f"line {each.line}: {each.evidence}" for each in found] == []


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_our_own_scripts_are_not_mentioned(name: str) -> None:
    site, scripts = read_site(name), sorted((GOLDEN / name).glob("*.sh"))
    assert scripts
    assert [finding for path in scripts for finding in lint_script(str(path), path.read_text(), site)] == []


def test_every_rule_has_a_reason_and_a_source() -> None:
    rows = [(rule.why, rule.source) for rule in (*SCRIPT_RULES, *SITE_RULES)]
    assert all(all(row) for row in [*rows, *((rule.why, rule.source) for rule in PROFILE_RULES)])


def test_a_finding_has_file_line_and_next_step() -> None:
    (finding,) = lint_script("job.sh", "#!/bin/sh\nexport MIOPEN_USER_DB=/tmp/x\n")
    text = render_findings((finding,))
    assert text.startswith("job.sh:2: fail: no library reads MIOPEN_USER_DB [misspelt-variable]\n")
    assert text.endswith("-> did you mean MIOPEN_USER_DB_PATH?")
    (finding,) = lint_script("job.sh", "#!/bin/sh\nexport CCL_KVS_MOD=mpi\n")
    assert "oneCCL" in finding.source


def test_known_variables_are_never_reported_as_misspelt() -> None:
    assert {name: meant for name in KNOWN if (meant := meant_variable(name))} == {}
    assert [name for name in KNOWN if not name.startswith(FAMILIES)] == []


@pytest.mark.parametrize("name", ["NCCL_BRAND_NEW_THING", "PATH", "MY_NCCL", "FI_XYZ", "CC", "ZE_"])
def test_names_unlike_all_known_ones_are_left_alone(name: str) -> None:
    assert meant_variable(name) == ""


def test_every_setting_of_every_shipped_profile_is_a_name_that_somebody_reads() -> None:
    names = {setting.name for site in site_names() for setting in read_site(site).settings}
    assert {name for name in names if name.startswith(FAMILIES)} <= KNOWN


FOUND = (
    ("misspelt-directive", "#SBTACH --mem=1G"),
    ("misspelt-directive", "#BATCH --mem=1G"),
    ("misspelt-option", "#SBATCH --mail=END"),
    ("misspelt-option", "#SBATCH -l nodes=2"),
    ("output-folder", "#SBATCH -o logs/%j.out\nmkdir -p logs"),
    ("cores-not-repeated", "srun --jobid $SLURM_JOB_ID python x.py"),
    ("cores-not-repeated", "srun $BIN"),
    ("cores-not-repeated", "srun $(which python) x.py"),
    ("cores-not-repeated", 'srun -w "$node" -N 1 python x.py'),
    ("cores-not-repeated", 'cmd="srun python x.py"\n$cmd'),
    ("cores-not-repeated", 'OPTS="-N 2 --label"\nsrun $OPTS python x.py'),
    ("cores-not-repeated", "for i in 1 2; do\n  srun python x.py &\ndone"),
    ("cores-not-repeated", "cd x && time srun python x.py | tee log"),
    ("fixed-port", "torchrun --rdzv_endpoint='$(scontrol show hostnames x | head -n 1)'i:29500 x.py"),
    ("fixed-port", 'torchrun --rdzv_endpoint="$(scontrol show hostnames x | head -n 1)":29500 x.py'),
    ("fixed-port", "RDZV_PORT=29400"),
    ("fixed-port", "PORT=29400\ntorchrun --master_port $PORT x.py"),
    ("fixed-port", "torchrun --master_port=$((29500 + GPU_ID)) x.py"),
    ("fixed-port", 'ARGS="--nnodes 2 --master_port 6000"\ntorchrun $ARGS x.py'),
    ("fixed-port", "ARGS=(\n  --nnodes 2\n  --master_port 6000\n)"),
    ("literal-rendezvous-id", "srun -c 7 torchrun --rdzv_id=\\$SLURM_JOB_ID x.py"),
    ("node-rank", 'CMD="torchrun --node_rank $SLURM_PROCID x.py"'),
    ("task-variable", "rank=$((SLURM_PROCID + 1))\nsrun -c 7 python x.py --rank $rank"),
    ("late-directive", "if true; then\n#SBATCH --mem=1G\nfi"),
)
"""Rule, and lines below the head that the rule finds; a plain pattern of the line does not find them."""


@pytest.mark.parametrize(("rule", "lines"), FOUND)
def test_a_mistake_is_found_in_every_form(rule: str, lines: str) -> None:
    head = HEAD.splitlines(keepends=True)
    at = len(head) if rule in {"cores-not-repeated", "late-directive", "node-rank", "task-variable"} else 1
    assert rule in rules_found("".join([*head[:at], lines + "\n", *head[at:]]))


SILENT = (
    ("misspelt-option", "#SBATCH --out=x --err=y --job-n=z --cluster=c --task=2 --oom-kill-step=1"),
    ("late-directive", "cat <<EOF > job.sh\n#SBATCH --mem=1G\nEOF"),
    ("late-directive", "sbatch <<'EOT'\n#!/bin/bash\n#SBATCH --mem=1G\nEOT"),
    ("late-directive", "#SBATCH --nodes=2"),
    ("late-directive", "{% if mail %}\n#SBATCH --mem=1G\n{% endif %}"),
    ("misspelt-option", "#SBATCH --quotatype=reserved"),
    ("misspelt-variable", "export NCCL_LL_THRESHOLD=0 NCCL_SHARP_DISABLE=1"),
    ("cores-not-repeated", "srun --cpu_bind=cores python x.py"),
    ("cores-not-repeated", "srun pip install x"),
    ("cores-not-repeated", "srun --cpus-per-gpu=7 python x.py"),
    ("cores-not-repeated", 'echo "run srun python x.py"'),
    ("cores-not-repeated", "# srun python x.py"),
    ("cores-not-repeated", "srun hostname"),
    ("cores-not-repeated", "srun $SRUN_OPTIONS python x.py"),
    ("cores-not-repeated", "srun -n 4 \\\n  -c 7 \\\n  python x.py"),
    ("cores-not-repeated", 'OPTS="-N 2 -c 7"\nsrun $OPTS python x.py'),
    ("cores-not-repeated", 'OPTS=(-N 2 -c 7)\nsrun "${OPTS[@]}" python x.py'),
    ("stray-backslash", "python x.py \\\n\npython y.py"),
    ("stray-backslash", "export OMP_NUM_THREADS=7\\\n\n"),
    ("fixed-port", "export MASTER_PORT=${MASTER_PORT:-29500}"),
    ("fixed-port", "torchrun --master_port=$((20000 + SLURM_JOB_ID % 10000)) x.py"),
    ("fixed-port", "torchrun --rdzv_endpoint=localhost:0 x.py"),
    ("misspelt-variable", "export NCCL_NVLS_NCHANNELS=2 NCCL_MAX_P2P_NCHANNELS=2 NCCL_IBEXT_DISABLE=1"),
    ("node-rank", 'echo "--node_rank $SLURM_NODEID"'),
    ("node-rank", "srun -c 7 bash -c 'torchrun --node_rank $SLURM_NODEID x.py'"),
    ("task-variable", "NODE_RANK=$SLURM_NODEID"),
    ("literal-rendezvous-id", 'srun -c 7 bash -c "torchrun --rdzv_id=\\$SLURM_JOB_ID x.py"'),
    ("misspelt-directive", "##SBATCH --mem=1G\n# SBATCH --mem=1G\n#PBS -l x\n#BSUB -x"),
)
"""Rule, and lines at the end of the good script that are right, or that do no harm."""


@pytest.mark.parametrize(("rule", "lines"), SILENT)
def test_correct_and_harmless_lines_give_no_finding(rule: str, lines: str) -> None:
    assert rule not in rules_found(HEAD + "srun -c 7 true\n" + lines + "\n")


def test_a_rule_about_several_nodes_is_silent_for_one() -> None:
    one = HEAD.replace("--nodes=2", "--nodes=1")
    assert "node-rank" not in rules_found(one + "srun -c 7 torchrun --node_rank $SLURM_NODEID x.py\n")
    alone = "#!/bin/sh\n#SBATCH -N 1 -n 1\nexport LOCAL_RANK=$SLURM_LOCALID\nsrun python x.py\n"
    assert lint_script("job.sh", alone) == ()


def test_cores_are_repeated_only_if_a_task_has_several() -> None:
    one = HEAD.replace("--cpus-per-task=7", "--cpus-per-task=1")
    assert "cores-not-repeated" not in rules_found(one + "srun python x.py\n")


@pytest.mark.parametrize("command", ["python x.py", "mpirun python x.py", "unset SLURM_EXPORT_ENV\nsrun python x.py"])
def test_export_none_is_found_with_srun_only(command: str) -> None:
    text = HEAD.replace("--nodes=2", "--nodes=2\n#SBATCH --export=NONE")
    assert "export-none" not in rules_found(text + command + "\n")


def test_a_fixed_port_on_an_exclusive_node_is_fine() -> None:
    text = HEAD.replace("--nodes=2", "--nodes=2\n#SBATCH --exclusive")
    assert "fixed-port" not in rules_found(text + "export MASTER_PORT=29500\n")


def test_advice_against_gpus_per_task_does_not_concern_jobs_that_keep_all_gpus() -> None:
    text = GOOD + "srun -c 7 --gpus-per-task=1 --gpu-bind=none python x.py\n"
    assert "site-advice" not in rules_found(text)


@pytest.mark.parametrize(
    ("value", "gpus"),
    [("gpu:a100:4,nvme:950", 4), ("gpu:1,vmem:20g", 1), ("gpu", 1), ("gpu:v100", 1), ("nvme:950", 0), ("gpu=4", 4),
     ("gres:gpu:2", 2), ("gpu:a100:2,gpu:v100:1", 3), ("gpu:4(S:0-1)", 4), ("", 0)],
)  # fmt: skip
def test_only_gpus_of_gres_are_counted(value: str, gpus: int) -> None:
    assert count_gpus(value, of_gres=True) == gpus


@pytest.mark.parametrize(
    ("options", "nodes"),
    [("-n 32 --ntasks-per-node=8", 4), ("-n 33 --tasks-per-node 8", 5), ("-N 2-4", 2), ("-n 32", 1), ("", 1)],
)
def test_the_options_give_the_number_of_nodes(options: str, nodes: int) -> None:
    assert Script("job.sh", f"#!/bin/sh\n#SBATCH {options}\n").nodes == nodes


def test_a_number_of_thousands_of_digits_is_not_read() -> None:
    assert count_gpus("gpu:" + "4" * 5000, of_gres=True) == 0
    assert Script("job.sh", f"#!/bin/sh\n#SBATCH -N {'4' * 5000}\n").nodes == 1


def test_a_script_of_another_interpreter_has_options_only() -> None:
    text = "#!/usr/bin/env python3\n#SBATCH --acount=x\nsrun = CUDA_LAUNCH_BLOCKING=1\n"
    assert [finding.what for finding in lint_script("job.py", text)] == ["misspelt-option"]


def test_continued_lines_are_one_command_on_its_first_line() -> None:
    script = Script("job.sh", "#!/bin/sh\nsrun -n 2 \\\n  -c 7 \\\n  python x.py\nwait 1\n")
    assert [(call.line, call.text) for call in script.calls] == [(2, "srun -n 2 -c 7 python x.py"), (5, "wait 1")]


@pytest.mark.parametrize(
    ("directive", "expected"),
    [("-N 2", ("nodes", "2")), ("--nodes 2", ("nodes", "2")), ("--nodes=2", ("nodes", "2")), ("-N2", ("nodes", "2"))],
)
def test_directives_are_read_in_each_of_their_forms(directive: str, expected: tuple[str, str]) -> None:
    (each,) = Script("job.sh", f"#!/bin/sh\n#SBATCH {directive}  # two\n").options
    assert (each.name, each.value) == expected


@pytest.mark.parametrize(
    ("command", "options", "program"),
    [
        ("srun -c 7 sh -c x", ["--cpus-per-task=7"], ("sh", "-c", "x")),
        ("srun --nodes 2 --exclusive python -c x", ["--nodes=2", "--exclusive"], ("python", "-c", "x")),
        ('srun $ARGS --ntasks="$n" sh x', ["--ntasks=${n}"], ("sh", "x")),
        ("srun -l -u -n4 python x.py", ["--label", "--unbuffered", "--ntasks=4"], ("python", "x.py")),
        ("srun --kill-on-bad-exit python x.py", ["--kill-on-bad-exit"], ("python", "x.py")),
        ("time -p srun python x.py", [], ("python", "x.py")),
    ],
)
def test_only_the_arguments_before_the_program_are_sruns(
    command: str, options: list[str], program: tuple[str, ...]
) -> None:
    (start,) = Script("job.sh", f"#!/bin/sh\n{command}\n").starts
    assert ([str(each) for each in start.options], start.program) == (options, program)


def test_a_list_of_a_thousand_commands_does_not_exhaust_the_stack() -> None:
    text = HEAD + "export A=1; " * 1000 + "\n" + "srun -c 7 python x.py && \\\n" * 1000 + "true\n"
    assert lint_script("job.sh", text) == ()


def test_the_launchers_that_a_profile_can_name_are_those_of_argosy() -> None:
    assert set(LAUNCHERS) == LAUNCHER_NAMES, "edit LAUNCHER_NAMES in sites/lint/value_rules.py"
