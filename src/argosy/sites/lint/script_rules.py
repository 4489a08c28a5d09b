"""Define the lint rules for job scripts, in general and compared with the profile of a site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from argosy.core.findings import FileFinding, State
from argosy.core.suggest import suggest_word
from argosy.sites.binding import parse_ranges
from argosy.sites.conditions import judge_condition
from argosy.sites.lint.job_script import NO_SITE, Job, Script, parse_script, srun_options
from argosy.sites.lint.known_variables import DOCUMENTED, FALSE_FRIENDS, FAMILIES, KNOWN, SBATCH_OPTIONS
from argosy.sites.lint.rule import Fault, Rule, file_finding
from argosy.sites.partitions import Demand, refuse_demand
from argosy.sites.profile import Site
from argosy.sites.resolve import full_address

PROFILE = "the site's profile: argosy sites show"


def _wrong_gpu_option(job: Job) -> Iterator[Fault]:
    wrong = {"amd": "--nv", "nvidia": "--rocm", "intel": "--nv"}.get(job.site.node.gpu_vendor, "")
    for line, text in job.script.lines:
        if wrong and re.search(rf"(singularity|apptainer)\s[^|;]*\s{wrong}(\s|$)", text):
            yield Fault(line, f"{wrong} is for GPUs that {job.site.name} does not have", "remove it")


def _required_options(job: Job) -> Iterator[Fault]:
    for name in job.site.slurm.required:
        if not job.script.option(name):
            yield Fault(0, f"{job.site.name} refuses jobs without --{name}", f"add #SBATCH --{name}=…")


def _limits(job: Job) -> Iterator[Fault]:
    name = job.script.option("partition")
    partition = job.site.partition(name) if name else None
    demand = Demand(job.script.nodes, job.script.gpus, job.script.option("time"))
    refusal = refuse_demand(partition, demand) if partition else ""
    if refusal:
        yield Fault(
            0, f"the partition {name} does not allow this job: {refusal}", "request less, or use another partition"
        )


def _billed_whole(job: Job) -> Iterator[Fault]:
    partition = job.site.partition(job.script.option("partition"))
    gpus = job.site.node.gpus
    if partition is not None and partition.whole_nodes and 0 < job.script.gpus < gpus:
        yield Fault(
            0,
            f"{partition.name} bills {gpus} GPUs, {job.script.gpus} are used",
            "use a partition that allocates parts of nodes",
        )


def _too_many_cores(job: Job) -> Iterator[Fault]:
    node = job.site.node
    usable = node.cores - len(parse_ranges(node.reserved))
    tasks = job.script.number("ntasks-per-node", "tasks-per-node") or 1
    cores = job.script.number("cpus-per-task") * tasks
    if node.cores and node.reserved and usable < cores <= node.cores:
        yield Fault(0, f"{cores} cores per node requested, jobs can use {usable}", f"request at most {usable}")


def _mask_off_the_map(job: Job) -> Iterator[Fault]:
    reserved = parse_ranges(job.site.node.reserved)
    for line, text in job.script.starts:
        for mask in re.findall(r"mask_cpu:([0-9a-fx,]+)", text):
            cores = {core for each in mask.split(",") for core in range(512) if int(each, 16) >> core & 1}
            if cores & reserved:
                yield Fault(line, f"a mask contains cores that jobs cannot use: {sorted(cores & reserved)}")


def _mask_on_part(job: Job) -> Iterator[Fault]:
    script, site = job.script, job.site
    partition = site.partition(script.option("partition"))
    whole = any(each.name == "exclusive" for each in script.directives) or (partition and partition.whole_nodes)
    if not site.slurm.mask_needs_whole_nodes or whole:
        return
    for line, text in script.starts:
        if re.search(r"(mask|map)_cpu:", text):
            yield Fault(line, "CPU masks work on whole nodes only", "add #SBATCH --exclusive")


def _missing_setting(job: Job) -> Iterator[Fault]:
    """Find variables that the profile sets for such a job and the script does not."""
    if not job.script.gpus:
        return
    given = {name for _, name, _ in job.variables()}
    for setting in job.site.settings:
        wanted = setting.name.startswith(("NCCL_", "CCL_")) and setting.name not in given
        if wanted and judge_condition(setting.condition, job.facts):
            yield Fault(0, f"{setting.name} is not set: {setting.why}", f"export {setting.name}={setting.value}")


def _build_with_bind_modules(job: Job) -> Iterator[Fault]:
    text = job.script.raw
    if not re.search(r"(singularity|apptainer)\s+build\b", text):
        return
    for line, command in job.script.lines:
        for module in job.site.build.unload:
            if re.search(rf"module\s+load\s.*\b{re.escape(module)}\b", command):
                yield Fault(line, f"the module {module} breaks builds", f"module unload {module}")


def _find_avoided(job: Job) -> Iterable[FileFinding]:
    """Find arguments and variables that the site advises against."""
    for avoid in job.site.avoid:
        if judge_condition(avoid.condition, job.facts) is False:
            continue
        for line in _lines_with(job.script, avoid.word):
            source = full_address(job.site, avoid.source)
            evidence = f"{job.site.name} advises against {avoid.word}"
            yield FileFinding(
                "site-advice",
                State.FAIL,
                evidence,
                avoid.instead,
                path=job.script.path,
                line=line,
                why=avoid.why,
                source=source,
            )


def _lines_with(script: Script, word: str) -> Iterator[int]:
    name, _, value = word.partition("=")
    pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    if not word.startswith("--"):
        yield from (each.line for each in script.variables if each.name == name and each.value == value)
        return
    for each in (*script.directives, *script.late_directives):
        if f"--{each.name}" == name and value in {"", each.value}:
            yield each.line
    yield from (line for line, text in script.lines if pattern.search(text))


SITE_RULES: tuple[Rule[Job], ...] = (
    Rule("wrong-gpu-option", "it has no effect there", PROFILE, _wrong_gpu_option),
    Rule("required-option", "Slurm rejects the job", PROFILE, _required_options),
    Rule("limit", "Slurm rejects the job, or the job never starts", PROFILE, _limits),
    Rule("billed-whole", "the project is billed for idle GPUs", PROFILE, _billed_whole),
    Rule("too-many-cores", "the job never starts: no node has that many cores for jobs", PROFILE, _too_many_cores),
    Rule("mask-off-the-map", "the ranks do not start", PROFILE, _mask_off_the_map),
    Rule("mask-on-part", "the cores may belong to other jobs", PROFILE, _mask_on_part),
    Rule("missing-setting", "the site's own scripts set it", PROFILE, _missing_setting),
    Rule("build-with-binds", "the build fails with a missing bind destination", PROFILE, _build_with_bind_modules),
)  # fmt: skip


EPHEMERAL = range(32768, 61000)
"""Ports that Linux uses for outgoing connections (default of ip_local_port_range)."""

SLURM = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
LIKENESS, FAMILY_LIKENESS = 0.85, 0.75


def lint_script(path: str, raw: str, site: Site | None = None) -> tuple[FileFinding, ...]:
    """Check a job script; with `site`, also compare it with the site's profile."""
    job = Job(parse_script(path, raw), site or NO_SITE)
    found = (file_finding(path, rule, each) for rule in (*SCRIPT_RULES, *SITE_RULES) for each in rule.check(job))
    return tuple(sorted((*found, *_find_avoided(job)), key=lambda finding: finding.line))


def _misspelt_variable(job: Job) -> Iterator[Fault]:
    """Find variables that no library reads, with names similar to known ones."""
    for line, name, _ in job.variables():
        if near := meant_variable(name):
            yield Fault(line, f"no library reads {name}", f"did you mean {near}?", documented(near))


def meant_variable(name: str) -> str:
    """Return the known name that a misspelt one probably means; empty for known names and for dissimilar ones."""
    if name in FALSE_FRIENDS:
        return FALSE_FRIENDS[name]
    if name in KNOWN:
        return ""
    if not name.startswith(FAMILIES):
        return _meant_family(name)
    return suggest_word(name, KNOWN, likeness=LIKENESS)


def documented(name: str) -> str:
    """Return the URL that documents a variable of a known family."""
    return DOCUMENTED[max((family for family in FAMILIES if name.startswith(family)), key=len)]


def _meant_family(name: str) -> str:
    """Find a misspelt family before the rest of a known name: ``NCLL_DEBUG``."""
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
        yield Fault(each.line, f"--{each.name} follows the first command", "move it to the head of the script")


def _variable_in_directive(job: Job) -> Iterator[Fault]:
    for each in job.script.directives:
        if re.search(r"\$\{?[A-Za-z_]", each.value):
            yield Fault(
                each.line,
                f"--{each.name}={each.value} contains a variable",
                "use %j, %x or %u, or pass the option to sbatch",
            )


def _hash_in_directive(job: Job) -> Iterator[Fault]:
    for number, line in enumerate(job.script.raw.splitlines(), 1):
        if re.match(r"#SBATCH\s.*--container-image=[^\s'\"]*[^\\]#", line):
            yield Fault(number, "sbatch reads # as the begin of a comment", r"write \#")


def _carriage_returns(job: Job) -> Iterator[Fault]:
    if "\r" in job.script.raw:
        yield Fault(1, "the file has Windows line endings", "convert it: sed -i 's/\\r$//' FILE")


def _stray_backslash(job: Job) -> Iterator[Fault]:
    lines = job.script.raw.splitlines()
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if line.endswith("\\") and not after.strip() and not line.lstrip().startswith("#"):
            yield Fault(number, "the backslash joins this line with an empty one", "remove the backslash")
        if re.search(r"\\[ \t]+$", line) and not line.lstrip().startswith("#"):
            yield Fault(number, "a space follows the backslash, so the line is not continued", "remove the space")


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
            yield Fault(line, f"port {value} is in the ephemeral range of Linux", "choose a port from 20000 to 29999")


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
                yield Fault(
                    line, "every node gets rank 0", r"write \$SLURM_NODEID inside bash -c, or use single quotes"
                )


def _literal_rendezvous_id(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        for match in re.finditer(r"--rdzv[-_]id[= ]\\\$", text):
            if text[: match.start()].count("'") % 2:
                yield Fault(
                    line, "torchrun gets the literal text $SLURM_JOB_ID", "remove the backslash inside single quotes"
                )


def _cores_not_repeated(job: Job) -> Iterator[Fault]:
    if not job.script.option("cpus-per-task") or any(job.variables("SRUN_CPUS_PER_TASK")):
        return
    for line, text in job.script.starts:
        options = srun_options(text)
        if not any(re.match(r"-c|--cpus-per-task|--cpu-bind|--exact|\"?\$", word) for word in options):
            yield Fault(
                line, "srun does not inherit --cpus-per-task", 'add --cpus-per-task="$SLURM_CPUS_PER_TASK" to srun'
            )


def _mask_with_cores(job: Job) -> Iterator[Fault]:
    for line, text in job.script.starts:
        options = srun_options(text)
        masked = any(re.match(r"--cpu-bind=\S*(mask|map)_cpu", word) for word in options)
        if masked and any(re.match(r"-c|--cpus-per-task", word) for word in options):
            yield Fault(line, "srun has both a CPU mask and --cpus-per-task", "remove --cpus-per-task from this srun")


def _export_none(job: Job) -> Iterator[Fault]:
    given = any(name == "SLURM_EXPORT_ENV" for _, name, _ in job.variables())
    for each in job.script.directives:
        passed_on = given or any("--export" in text for _, text in job.script.starts)
        if each.name == "export" and each.value.upper() == "NONE" and not passed_on:
            yield Fault(each.line, "srun inherits --export=NONE", "add: export SLURM_EXPORT_ENV=ALL")


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
                line, "the folder is created on the first node only", "create it in the task: srun sh -c 'mkdir -p …'"
            )


def _c10d_order(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        if job.script.nodes > 1 and re.search(r"--rdzv[-_]backend[= ]\"?c10d", text):
            yield Fault(
                line, "c10d assigns ranks in any order, and ignores --node-rank", "use --node-rank and --master-addr"
            )


def _versioned_library(job: Job) -> Iterator[Fault]:
    for line, text in job.script.lines:
        for library in re.findall(r"/usr/lib(?:64)?/\S*?(lib[\w+-]+\.so\.\d+\.\d+\.\d+[.\d]*)", text):
            yield Fault(line, f"the name of {library} changes with each update", "find it in the job: ls lib….so.*")


def _gdr_phb(job: Job) -> Iterator[Fault]:
    amd = job.site.node.gpu_vendor == "amd" or re.search(
        r"rocm|miopen|(rocr|hip)_\w+=|\$\{?(rocr|hip)_|mi[23]\d\d", job.script.raw, re.IGNORECASE
    )
    for line, _, value in job.variables("NCCL_NET_GDR_LEVEL"):
        if amd and value == "PHB":
            yield Fault(line, "NCCL_NET_GDR_LEVEL=PHB hangs with ROCm 7", "remove it with ROCm 6.2 and later")


def _ofi_on_one_node(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("NCCL_NET"):
        if value == "OFI" and job.script.nodes == 1:
            yield Fault(line, "NCCL_NET=OFI in a job of one node", "remove it, or use NCCL_NET=Socket")


def _plugin_twice(job: Job) -> Iterator[Fault]:
    nets = [value for _, _, value in job.variables("NCCL_NET")]
    for line, _, value in job.variables("NCCL_NET_PLUGIN"):
        if value == "ofi" and nets:
            yield Fault(line, "both NCCL_NET_PLUGIN=ofi and NCCL_NET are set", "set one of the two")


def _memhooks(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("FI_MR_CACHE_MONITOR"):
        if value == "memhooks":
            yield Fault(line, "FI_MR_CACHE_MONITOR=memhooks can deadlock", "use userfaultfd, or kdreg2 if available")


def _fast_path_off(job: Job) -> Iterator[Fault]:
    for line, name, value in job.variables("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if value == "1":
            yield Fault(line, f"{name}=1 disables a fast path", "remove it, unless you debug")


def _blocking_launch(job: Job) -> Iterator[Fault]:
    for line, name, value in job.variables("CUDA_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        if value not in {"", "0"}:
            yield Fault(line, f"{name} makes every kernel wait for the previous one", "remove it for production runs")


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
    Rule("misspelt-variable", "the setting has no effect, without a warning", NCCL, _misspelt_variable),
    Rule("misspelt-option", "sbatch rejects the job", SLURM, _misspelt_option),
    Rule("late-directive", "sbatch stops reading options at the first command", SLURM, _late_directive),
    Rule("variable-in-directive", "sbatch does not expand variables there", SLURM, _variable_in_directive),
    Rule("hash-in-directive", "# begins a comment", "https://github.com/NVIDIA/pyxis#usage", _hash_in_directive),
    Rule("carriage-returns", "the interpreter is not found", SLURM, _carriage_returns),
    Rule("stray-backslash", "two lines are joined, or one is split", DAWN + "setup_mpi.sh", _stray_backslash),
    Rule(
        "fixed-port", "two jobs on one node connect to each other, or the second one fails",
        "https://github.com/pytorch/pytorch/issues/73656", _fixed_port,
    ),
    Rule(
        "ephemeral-port", "another program may use it at that moment",
        "https://man7.org/linux/man-pages/man7/ip.7.html", _ephemeral_port,
    ),
    Rule("task-variable", "the batch shell expands it, for task 0 only", MN5, _task_variable_in_batch_shell),
    Rule("node-rank", "the batch shell expands it, and torchrun hangs", MN5, _node_rank_too_early),
    Rule(
        "literal-rendezvous-id", "every job has the same rendezvous id",
        "https://github.com/Lumi-supercomputer/LUMI-AI-Guide/blob/a7e3387/05-multi-gpu-and-node/run_ddp_torchrun_4.sh",
        _literal_rendezvous_id,
    ),
    Rule("cores-not-repeated", "since Slurm 22.05 each task gets one core", JSC, _cores_not_repeated),
    Rule("mask-with-cores", "the two contradict each other", LTM25 + "202-Binding.md", _mask_with_cores),
    Rule("export-none", "tasks do not get PATH and other variables", SRUN, _export_none),
    Rule("cache-on-first-node", "the folder does not exist on the other nodes", MIOPEN, _cache_on_first_node),
    Rule("c10d-order", "rank 0 may be on another node than MASTER_ADDR", C10D, _c10d_order),
    Rule("versioned-library", "the mount fails after the next update", DAWN + "setup_apptainer.sh", _versioned_library),
    Rule(
        "gdr-phb", "jobs on several nodes hang with ROCm 7; level 3 is the default from ROCm 6.2",
        PHB, _gdr_phb,
    ),
    Rule("ofi-on-one-node", "the network is not configured for jobs of one node", OLCF, _ofi_on_one_node),
    Rule("plugin-twice", "NCCL does not start", CSCS, _plugin_twice),
    Rule("memhooks", "the cache of libfabric and the plugin of NCCL wait for each other", OLCF, _memhooks),
    Rule("fast-path-off", "communication falls back to sockets or host memory", NCCL, _fast_path_off),
    Rule("blocking-launch", "it slows down the job; it is for debugging", TORCH, _blocking_launch),
)  # fmt: skip
