"""The rules for job scripts: what everybody trips over, and what the site's profile says; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.findings import FileFinding
from argosy.core.suggest import suggest_word
from argosy.sites.lint.job_script import NOWHERE, Job, parse_script, srun_options
from argosy.sites.lint.known_variables import DOCUMENTED, FALSE_FRIENDS, FAMILIES, KNOWN, SBATCH_OPTIONS
from argosy.sites.lint.rule import Fault, Rule, file_finding
from argosy.sites.lint.site_rules import SITE_RULES, avoided
from argosy.sites.profile import Site

EPHEMERAL = range(32768, 61000)
"""Ports that Linux gives to outgoing connections (ip_local_port_range's default)."""

SLURM = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
LIKENESS, FAMILY_LIKENESS = 0.85, 0.75


def lint_script(path: str, raw: str, site: Site | None = None) -> tuple[FileFinding, ...]:
    """Check a job script; with `site`, also against its profile."""
    job = Job(parse_script(path, raw), site or NOWHERE)
    found = (file_finding(path, rule, each) for rule in (*SCRIPT_RULES, *SITE_RULES) for each in rule.check(job))
    return tuple(sorted((*found, *avoided(job)), key=lambda finding: finding.line))


def _misspelt_variable(job: Job) -> Iterator[Fault]:
    """Find names of known families that nothing reads."""
    for line, name, _ in job.variables():
        if near := meant_variable(name):
            yield Fault(line, f"nothing reads {name}", f"did you mean {near}?", documented(near))


def meant_variable(name: str) -> str:
    """Give the real name that a wrong one probably means; nothing for real names, and for those like none."""
    if name in FALSE_FRIENDS:
        return FALSE_FRIENDS[name]
    if name in KNOWN:
        return ""
    if not name.startswith(FAMILIES):
        return _meant_family(name)
    return suggest_word(name, KNOWN, likeness=LIKENESS)


def documented(name: str) -> str:
    """Give where a variable of a known family is documented."""
    return DOCUMENTED[max((family for family in FAMILIES if name.startswith(family)), key=len)]


def _meant_family(name: str) -> str:
    """Find ``NCLL_DEBUG``: the rest of a known name behind a family that there is not."""
    head, _, rest = name.partition("_")
    family = suggest_word(f"{head}_", FAMILIES, likeness=FAMILY_LIKENESS)
    return f"{family}{rest}" if family and f"{family}{rest}" in KNOWN else ""


def _misspelt_option(job: Job) -> Iterator[Fault]:
    for each in (*job.script.directives, *job.script.late_directives):
        if len(each.name) > 1 and each.name not in SBATCH_OPTIONS:
            near = suggest_word(each.name, SBATCH_OPTIONS)
            yield Fault(each.line, f"sbatch has no option --{each.name}", f"did you mean --{near}?" if near else "")


def _late_directive(job: Job) -> Iterator[Fault]:
    for each in job.script.late_directives:
        yield Fault(each.line, f"--{each.name} stands below the first command", "move it to the head of the script")


def _variable_in_directive(job: Job) -> Iterator[Fault]:
    for each in job.script.directives:
        if re.search(r"\$\{?[A-Za-z_]", each.value):
            yield Fault(
                each.line, f"--{each.name}={each.value} holds a variable", "use %j, %x, %u, or sbatch's options"
            )


def _hash_in_directive(job: Job) -> Iterator[Fault]:
    for number, line in enumerate(job.script.raw.splitlines(), 1):
        if re.match(r"#SBATCH\s.*--container-image=[^\s'\"]*[^\\]#", line):
            yield Fault(number, "what follows # is taken for a comment", r"write \#")


def _carriage_returns(job: Job) -> Iterator[Fault]:
    if "\r" in job.script.raw:
        yield Fault(1, "the lines end as on Windows", "convert it: sed -i 's/\\r$//' FILE")


def _stray_backslash(job: Job) -> Iterator[Fault]:
    lines = job.script.raw.splitlines()
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if line.endswith("\\") and not after.strip() and not line.lstrip().startswith("#"):
            yield Fault(number, "a backslash joins this line with an empty one", "remove it")
        if re.search(r"\\[ \t]+$", line) and not line.lstrip().startswith("#"):
            yield Fault(number, "a blank follows the backslash, so the line is not continued", "remove the blank")


def _fixed_port(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("MASTER_PORT"):
        if value.isdigit() and int(value) not in EPHEMERAL:
            yield Fault(line, f"every job uses port {value}", "derive it: $((20000 + SLURM_JOB_ID % 10000))")
    for line, text in job.script.lines:
        for port in re.findall(r"--(?:rdzv[_-]endpoint|master[_-]port)[= ]\"?\S*?:?(\d{4,5})\b", text):
            if not re.search(r"\$\(\(", text):
                yield Fault(line, f"every job uses port {port}", "use $MASTER_PORT, derived from the job id")


def _ephemeral_port(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("MASTER_PORT"):
        numbers = [int(number) for number in re.findall(r"(?<![\w%:-])\d{5}\b", value)]
        if any(number in EPHEMERAL for number in numbers):
            yield Fault(line, f"the port {value} lies in Linux's ephemeral range", "choose one from 20000 to 29999")


def _task_variable_in_batch_shell(job: Job) -> Iterator[Fault]:
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    for line, name, value in job.variables(*names):
        text = dict(job.script.lines)[line]
        if re.search(r"\$\{?SLURM_(PROCID|LOCALID|NODEID)", value) and "srun" not in text and "'" not in text:
            yield Fault(line, f"{name} is the same for every task", "set it in the task: srun sh -c '…'")


def _node_rank_too_early(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        for match in re.finditer(r"(?<!\\)\$\{?SLURM_(PROCID|NODEID)", text):
            before = text[: match.start()]
            if re.search(r"--node[-_]rank[= ]\"?$", before) and before.count("'") % 2 == 0:
                yield Fault(line, "every node gets rank 0", r"write \$SLURM_NODEID within bash -c, or single quotes")


def _literal_rendezvous_id(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        for match in re.finditer(r"--rdzv[-_]id[= ]\\\$", text):
            if text[: match.start()].count("'") % 2:
                yield Fault(line, "torchrun is handed the text $SLURM_JOB_ID", "no backslash within single quotes")


def _cores_not_repeated(job: Job) -> Iterator[Fault]:
    if not job.script.option("cpus-per-task") or any(job.variables("SRUN_CPUS_PER_TASK")):
        return
    for line, text in job.script.starts:
        options = srun_options(text)
        if not any(re.match(r"-c|--cpus-per-task|--cpu-bind|--exact|\"?\$", word) for word in options):
            yield Fault(
                line, "srun does not take --cpus-per-task from the job", '--cpus-per-task="$SLURM_CPUS_PER_TASK"'
            )


def _mask_with_cores(job: Job) -> Iterator[Fault]:
    for line, text in job.script.starts:
        options = srun_options(text)
        masked = any(re.match(r"--cpu-bind=\S*(mask|map)_cpu", word) for word in options)
        if masked and any(re.match(r"-c|--cpus-per-task", word) for word in options):
            yield Fault(line, "srun has both a mask and --cpus-per-task", "leave --cpus-per-task out on this srun")


def _export_none(job: Job) -> Iterator[Fault]:
    given = any(name == "SLURM_EXPORT_ENV" for _, name, _ in job.variables())
    for each in job.script.directives:
        passed_on = given or any("--export" in text for _, text in job.script.starts)
        if each.name == "export" and each.value.upper() == "NONE" and not passed_on:
            yield Fault(each.line, "srun passes no environment on either", "export SLURM_EXPORT_ENV=ALL")


def _cache_on_first_node(job: Job) -> Iterator[Fault]:
    if job.script.nodes < 2:  # noqa: PLR2004 - one node is the first node
        return
    caches = [
        value for _, name, value in job.variables("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "MIOPEN_USER_DB")
    ]
    for line, text in job.script.lines:
        makes = re.search(r"(^|[\s;&(])(mktemp -d|mkdir)\b", text)
        if makes and "srun" not in text and (any(c and c in text for c in caches) or "MIOPEN" in text):
            yield Fault(
                line, "the folder is made on the first node only", "make it in the task: srun sh -c 'mkdir -p …'"
            )


def _c10d_order(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        if job.script.nodes > 1 and re.search(r"--rdzv[-_]backend[= ]\"?c10d", text):
            yield Fault(line, "c10d gives ranks in no order, and ignores --node-rank", "--node-rank, --master-addr")


def _versioned_library(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        for library in re.findall(r"/usr/lib(?:64)?/\S*?(lib[\w+-]+\.so\.\d+\.\d+\.\d+[.\d]*)", text):
            yield Fault(
                line, f"{library} changes its name with each update", "look for it when the job runs: ls lib….so.*"
            )


def _gdr_phb(job: Job) -> Iterator[Fault]:
    amd = job.site.node.gpu_vendor == "amd" or re.search(
        r"rocm|miopen|(rocr|hip)_\w+=|\$\{?(rocr|hip)_|mi[23]\d\d", job.script.raw, re.IGNORECASE
    )
    for line, _, value in job.variables("NCCL_NET_GDR_LEVEL"):
        if amd and value == "PHB":
            yield Fault(line, "NCCL_NET_GDR_LEVEL=PHB hangs with ROCm 7", "leave it out from ROCm 6.2 on")


def _ofi_on_one_node(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("NCCL_NET"):
        if value == "OFI" and job.script.nodes == 1:
            yield Fault(line, "NCCL_NET=OFI on one node", "NCCL_NET=Socket, or leave it out")


def _plugin_twice(job: Job) -> Iterator[Fault]:
    nets = [value for _, _, value in job.variables("NCCL_NET")]
    for line, _, value in job.variables("NCCL_NET_PLUGIN"):
        if value == "ofi" and nets:
            yield Fault(line, "NCCL_NET_PLUGIN=ofi beside NCCL_NET", "set one of the two")


def _memhooks(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("FI_MR_CACHE_MONITOR"):
        if value == "memhooks":
            yield Fault(line, "FI_MR_CACHE_MONITOR=memhooks can deadlock", "userfaultfd, or kdreg2 where it is")


def _fast_path_off(job: Job) -> Iterator[Fault]:
    for line, name, value in job.variables("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if value == "1":
            yield Fault(line, f"{name}=1 turns a fast path off", "leave it out, unless you look for an error")


def _blocking_launch(job: Job) -> Iterator[Fault]:
    for line, name, value in job.variables("CUDA_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        if value not in {"", "0"}:
            yield Fault(line, f"{name} makes every kernel wait for the one before", "leave it out of real runs")


PHB = "https://github.com/Lumi-supercomputer/LUMI-AI-Guide/pull/97"
C10D = "https://github.com/pytorch/pytorch/issues/137402"
TORCH = "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html"
JSC = "https://apps.fz-juelich.de/jsc/hps/juwels/affinity.html"
CSCS = "https://github.com/eth-cscs/cscs-docs/blob/80abed1/docs/software/communication/nccl.md"
OLCF = "https://github.com/olcf/olcf-user-docs/blob/2745903/software/analytics/pytorch_frontier.rst"
LTM25 = "https://github.com/Lumi-supercomputer/LUMI-training-materials/blob/d64bc58/docs/2day-20251020/"
MIOPEN = "https://github.com/Lumi-supercomputer/lumi-userguide/blob/6c3a26c/docs/software/packages/pytorch.md"
MN5 = "https://github.com/TJ-Solergibert/MN5-Distributed-PyTorch/blob/1131254/slurm/submit_multinode.sh"
DAWN = "https://github.com/kh296/dawn-containers/blob/120b900/pytorch/"

SCRIPT_RULES: tuple[Rule[Job], ...] = (
    Rule("misspelt-variable", "the setting has no effect, and nobody says so", NCCL, _misspelt_variable),
    Rule("misspelt-option", "sbatch refuses the job", SLURM, _misspelt_option),
    Rule("late-directive", "sbatch stops reading options at the first command", SLURM, _late_directive),
    Rule("variable-in-directive", "sbatch does not expand variables there", SLURM, _variable_in_directive),
    Rule("hash-in-directive", "# begins a comment", "https://github.com/NVIDIA/pyxis#usage", _hash_in_directive),
    Rule("carriage-returns", "the interpreter is not found", SLURM, _carriage_returns),
    Rule("stray-backslash", "the next line becomes part of this one", DAWN + "setup_mpi.sh", _stray_backslash),
    Rule(
        "fixed-port", "two jobs on one node meet, or the second fails",
        "https://github.com/pytorch/pytorch/issues/73656", _fixed_port,
    ),
    Rule(
        "ephemeral-port", "another program may have it just then",
        "https://man7.org/linux/man-pages/man7/ip.7.html", _ephemeral_port,
    ),
    Rule("task-variable", "the batch shell is task 0: it expands it once", MN5, _task_variable_in_batch_shell),
    Rule("node-rank", "the batch shell expands it, and torchrun hangs", MN5, _node_rank_too_early),
    Rule(
        "literal-rendezvous-id", "every job has the same id",
        "https://github.com/Lumi-supercomputer/LUMI-AI-Guide/blob/a7e3387/05-multi-gpu-and-node/run_ddp_torchrun_4.sh",
        _literal_rendezvous_id,
    ),
    Rule("cores-not-repeated", "since Slurm 22.05 each task gets one core", JSC, _cores_not_repeated),
    Rule("mask-with-cores", "the two contradict each other", LTM25 + "202-Binding.md", _mask_with_cores),
    Rule("export-none", "tasks miss PATH and all settings", SRUN, _export_none),
    Rule("cache-on-first-node", "the other nodes have no such folder", MIOPEN, _cache_on_first_node),
    Rule("c10d-order", "rank 0 may be on another node than MASTER_ADDR", C10D, _c10d_order),
    Rule("versioned-library", "the mount fails after the next update", DAWN + "setup_apptainer.sh", _versioned_library),
    Rule(
        "gdr-phb", "jobs on several nodes hang with ROCm 7; level 3 is the default from ROCm 6.2",
        PHB, _gdr_phb,
    ),
    Rule("ofi-on-one-node", "the network is not set up for jobs of one node", OLCF, _ofi_on_one_node),
    Rule("plugin-twice", "NCCL does not start", CSCS, _plugin_twice),
    Rule("memhooks", "libfabric's cache and NCCL's plugin wait for each other", OLCF, _memhooks),
    Rule("fast-path-off", "bandwidth falls to that of sockets or of host memory", NCCL, _fast_path_off),
    Rule("blocking-launch", "it is for looking for errors", TORCH, _blocking_launch),
)  # fmt: skip
