"""Define the lint rules for job scripts at any site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from argosy.core.findings import FileFinding
from argosy.core.suggest import suggest_word
from argosy.sites.lint.known_variables import DOCUMENTED, FALSE_FRIENDS, FAMILIES, KNOWN
from argosy.sites.lint.rule import NO_SITE, Fault, Job, Rule, Script, add_rule, file_finding, flat_parts, option_values
from argosy.sites.lint.site_rules import SITE_RULES, find_avoided
from argosy.sites.profile import Site
from argosy.slurm.sbatch import DASHES, NATIVE_OPTIONS, SBATCH_LETTERS, SBATCH_OPTIONS, complete_option
from argosy.slurm.script_reader import SHELL
from argosy.slurm.script_words import WordPart

EPHEMERAL = range(32768, 61000)
"""Ports that Linux uses for outgoing connections (default of ip_local_port_range)."""

SLURM = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
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

LIKENESS, FAMILY_LIKENESS = 0.85, 0.75

SCRIPT_RULES: list[Rule[Job]] = []
"""The rules of this module, in its order."""

_rule = partial(add_rule, SCRIPT_RULES)


def lint_script(path: str, raw: str, site: Site | None = None) -> tuple[FileFinding, ...]:
    """Check a job script; with `site`, also compare it with the site's profile."""
    job = Job(Script(path, raw), site or NO_SITE)
    found = (file_finding(path, rule, each) for rule in (*SCRIPT_RULES, *SITE_RULES) for each in rule.check(job))
    return tuple(sorted(dict.fromkeys((*found, *find_avoided(job))), key=lambda finding: finding.line))


@_rule("misspelt-variable", "the setting has no effect, without a warning", NCCL)
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


NOT_OF_SBATCH = frozenset({"workdir", "share", "mpi", "cpu-bind", "label", "pty", "overlap", "exact", "multi-prog"})
"""Options that older versions of sbatch had, or that only srun has."""

TEMPLATE = re.compile(r"\{\{|\{%|<%|\$\$\{|@\w+@|^\s*@\(", re.MULTILINE)
"""Placeholders: another program makes the job script from this file."""


@_rule("misspelt-option", "sbatch rejects the job", SLURM)
def _misspelt_option(job: Job) -> Iterator[Fault]:
    """Find options that sbatch does not have; plug-ins of a site may add others, so a similar one must exist."""
    for each in (*job.script.written, *job.script.written_late):
        name = complete_option(each.name)
        if name in SBATCH_OPTIONS or name in SBATCH_LETTERS:
            continue
        if len(name) == 1:
            yield Fault(each.line, f"sbatch has no option -{name}")
            continue
        meant = sorted(option for option in NATIVE_OPTIONS if option.startswith(name))
        if meant:
            yield Fault(each.line, f"--{name} is ambiguous", f"use --{' or --'.join(meant[:3])}")
            continue
        near = suggest_word(name, SBATCH_OPTIONS)
        if not near and name not in NOT_OF_SBATCH:  # plug-ins of a site add options
            continue
        yield Fault(each.line, f"sbatch has no option --{name}", f"did you mean --{near}?" if near else "")


@_rule("misspelt-directive", "the option has no effect, without a warning", SLURM)
def _misspelt_directive(job: Job) -> Iterator[Fault]:
    for number, line in enumerate(job.script.raw.splitlines(), 1):
        match = re.match(r"#([A-Z]{4,8})\s+-{1,2}\w", line)
        if match and match[1] != "SBATCH" and suggest_word(match[1], ["SBATCH"], likeness=FAMILY_LIKENESS):
            yield Fault(number, f"sbatch ignores #{match[1]}", "write #SBATCH")


@_rule("late-directive", "sbatch stops reading options at the first command", SLURM)
def _late_directive(job: Job) -> Iterator[Fault]:
    """Find directives below the first command, unless the same option also stands above it."""
    if not SHELL.match(job.script.raw) or TEMPLATE.search(job.script.raw):
        return
    given = {(each.name, each.value) for each in job.script.written}
    for each in job.script.written_late:
        if (each.name, each.value) not in given:
            yield Fault(each.line, f"--{each.name} follows the first command", "move it to the head of the script")


@_rule("variable-in-directive", "sbatch does not expand variables there", SLURM)
def _variable_in_directive(job: Job) -> Iterator[Fault]:
    for each in job.script.options if not TEMPLATE.search(job.script.raw) else ():
        if re.search(r"\$\{?[A-Za-z_]", each.value):
            yield Fault(
                each.line,
                f"--{each.name}={each.value} contains a variable",
                "use %j, %x or %u, or pass the option to sbatch",
            )


@_rule("hash-in-directive", "# begins a comment", "https://github.com/NVIDIA/pyxis#usage")
def _hash_in_directive(job: Job) -> Iterator[Fault]:
    for number, line in enumerate(job.script.raw.splitlines(), 1):
        if re.match(r"#SBATCH\s.*--container-image=[^\s'\"]*[^\\]#", line):
            yield Fault(number, "sbatch reads # as the beginning of a comment", r"write \#")


@_rule("carriage-returns", "the interpreter is not found", SLURM)
def _carriage_returns(job: Job) -> Iterator[Fault]:
    if "\r" in job.script.raw:
        yield Fault(1, "the file has Windows line endings", "convert it: sed -i 's/\\r$//' FILE")


@_rule("byte-order-mark", "sbatch does not find #! in the first line", SLURM)
def _byte_order_mark(job: Job) -> Iterator[Fault]:
    if job.script.raw.startswith("\ufeff"):
        yield Fault(1, "the file begins with a byte order mark", "remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' FILE")


@_rule("typographic-dash", "sbatch rejects the directive", SLURM)
def _typographic_dash(job: Job) -> Iterator[Fault]:
    for number, line in enumerate(job.script.raw.splitlines(), 1):
        if match := re.match(rf"#SBATCH\s+(-?[{DASHES}]\S*)", line):
            yield Fault(number, f"{match[1]} begins with a typographic dash", "write -- as two hyphens")


@_rule("stray-backslash", "two lines are joined, or one is split", DAWN + "setup_mpi.sh")
def _stray_backslash(job: Job) -> Iterator[Fault]:
    """Find continued commands that an empty line, a comment or a space after the backslash cuts in two."""
    lines = job.script.raw.replace("\r", "").split("\n")
    inner = job.script.inner_lines()
    for number, line in enumerate(lines, 1):
        if number in inner or line.lstrip().startswith("#") or not re.search(r"(?<!\\)\\[ \t]*$", line):
            continue
        after = lines[number : number + 1] or [""]
        goes_on = _goes_on(line, lines[number:])
        if line[-1:].isspace() and goes_on:
            yield Fault(number, "a space follows the backslash, so the line is not continued", "remove the space")
        elif not after[0].strip() and goes_on:
            yield Fault(number, "the backslash joins this line with an empty one", "remove the empty line")
        elif after[0].lstrip().startswith("#") and goes_on:
            yield Fault(number + 1, "a comment ends the continued command", "move the comment above the command")


def _goes_on(line: str, after: list[str]) -> bool:
    """Return whether the next line with text was probably meant to continue the command."""
    following = next((text for text in after if text.strip() and not text.lstrip().startswith("#")), "")
    indent = len(line) - len(line.lstrip())
    return bool(re.match(r"\s*(-{1,2}\w|\||&&|>)", following)) or (
        len(following) - len(following.lstrip()) > indent and not re.match(r"\s*\w+\s*\+?=", following)
    )


PORT_NAME = re.compile(r"(?:MASTER|RDZV|MAIN_PROCESS|DIST|DDP)_?PORT")
PORT_OPTION = r"rdzv[_-]endpoint|master[_-]port|main[_-]process[_-]port"
DERIVED = re.compile(r"JOB|RANDOM|UID|PID|TASK|PORT|ARRAY|\$\$|\$\(|`|shuf|date", re.IGNORECASE)


@_rule(
    "fixed-port",
    "two jobs on one node connect to each other, or the second one fails",
    "https://github.com/pytorch/pytorch/issues/73656",
)
def _fixed_port(job: Job) -> Iterator[Fault]:
    """Find ports that every job would use, in jobs that may share a node."""
    if job.script.has("exclusive"):
        return
    for each in job.script.variables:
        port = _constant_port(each.value) if PORT_NAME.fullmatch(each.name) else ""
        if port and int(port) not in EPHEMERAL:
            yield Fault(each.line, f"every job uses port {port}", "derive it: $((20000 + SLURM_JOB_ID % 10000))")
    for call in job.script.calls:
        for value, _ in option_values(call, PORT_OPTION):
            if port := _constant_port(_port_value(job.script, value)):
                yield Fault(call.line, f"every job uses port {port}", "use $MASTER_PORT, derived from the job id")


def _port_value(script: Script, value: str) -> str:
    """Return the port of ``HOST:PORT``, with a variable replaced by its value unless that is reported itself."""
    port = value.rpartition(":")[2] if "$((" not in value else value[value.index("$((") :]
    name = re.fullmatch(r"\$\{(\w+)\}", port)
    if not name or PORT_NAME.fullmatch(name[1]):
        return port
    values = {each.value for each in script.variables if each.name == name[1]}
    return values.pop() if len(values) == 1 else ""


def _constant_port(value: str) -> str:
    """Return a port that is the same for every job; empty for a port that depends on the job."""
    if re.fullmatch(r"\d{4,5}", value):
        return value
    match = re.fullmatch(r"\$\(\((.*)\)\)", value)
    number = re.search(r"\b\d{4,5}\b", value)
    return number[0] if match and number and not DERIVED.search(match[1]) else ""


@_rule("ephemeral-port", "another program may use it at that moment", "https://man7.org/linux/man-pages/man7/ip.7.html")
def _ephemeral_port(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("MASTER_PORT"):
        numbers = [int(number) for number in re.findall(r"(?<![\w%:-])\d{5}\b", value)]
        if any(number in EPHEMERAL for number in numbers):
            yield Fault(line, f"port {value} is in the ephemeral range of Linux", "choose a port from 20000 to 29999")


TASK_NUMBER = re.compile(r"SLURM_(PROCID|LOCALID|NODEID)\b")


def _has_task_number(part: WordPart) -> bool:
    return part.kind != "text" and bool(TASK_NUMBER.search(part.text))


@_rule("task-variable", "the batch shell expands it, for task 0 only", MN5)
def _task_variable_in_batch_shell(job: Job) -> Iterator[Fault]:
    """Find ranks and devices that the batch shell sets from the number of its own task."""
    names = {
        "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "MACHINE_RANK",
        "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    }  # fmt: skip
    script = job.script
    has_tasks = script.tasks > 1 or any({"ntasks", "ntasks-per-node"} & start.names() for start in script.starts)
    if not has_tasks or not any(re.search(r"\b(srun|mpirun|mpiexec)\b", call.text) for call in script.calls):
        return
    for each in script.variables:
        is_read = each.name.isupper() and not each.name.endswith("E_RANK")  # by PyTorch, from the environment
        is_used = is_read or re.search(rf"\$\{{?{re.escape(each.name)}\b", script.raw)
        if each.name.upper() in names and not each.depth and is_used and any(map(_has_task_number, each.word)):
            yield Fault(each.line, f"{each.name} is the same for every task", "set it in the task: srun sh -c '…'")


@_rule("node-rank", "the batch shell expands it, and torchrun hangs", MN5)
def _node_rank_too_early(job: Job) -> Iterator[Fault]:
    """Find a node rank that the batch shell expands, outside quotes that a shell of the task reads."""
    if job.script.nodes < 2:  # noqa: PLR2004 - one node is node 0
        return
    for call in job.script.calls:
        before = ""
        for part in flat_parts(call) if not call.depth else ():
            if _has_task_number(part) and re.search(r"--(node|machine)[-_]rank[= ]\s*[\"']?$", before):
                yield Fault(
                    call.line, "every node gets rank 0", r"write \$SLURM_NODEID inside bash -c, or use single quotes"
                )
            before += part.text


@_rule(
    "literal-rendezvous-id",
    "every job has the same rendezvous id",
    "https://github.com/Lumi-supercomputer/LUMI-AI-Guide/blob/a7e3387/05-multi-gpu-and-node/run_ddp_torchrun_4.sh",
)
def _literal_rendezvous_id(job: Job) -> Iterator[Fault]:
    for call in job.script.calls:
        for value, word in option_values(call, "rdzv[-_]id"):
            is_literal = any(part.kind == "text" and "$" in part.text for part in word)
            if is_literal and len(value.split()) == 1:
                yield Fault(
                    call.line, f"torchrun gets the literal text {value}", "remove the backslash before the dollar sign"
                )


SMALL_PROGRAMS = frozenset(
    "hostname echo printf mkdir rm cp mv ln ls cat date env printenv nvidia-smi rocm-smi lscpu numactl sleep true tar "  # noqa: SIM905
    "rsync unzip chmod touch df free uptime test which pwd whoami dcgmi sbcast find ip grep kill pip pip3 conda".split()
)
"""Programs that need one core only."""

GIVES_CORES = frozenset({"cpus-per-task", "cpus-per-gpu", "cpu-bind", "exact", "whole", "multi-prog"})


@_rule("cores-not-repeated", "since Slurm 22.05 each task gets one core", JSC)
def _cores_not_repeated(job: Job) -> Iterator[Fault]:
    """Find calls of srun that start a parallel program without a number of cores."""
    if job.script.option("cpus-per-task") in {"", "1"} or any(job.variables("SRUN_CPUS_PER_TASK")):
        return
    for start in job.script.starts:
        program = start.program[0].rpartition("/")[2] if start.program else ""
        if not start.is_open and not GIVES_CORES & start.names() and program and program not in SMALL_PROGRAMS:
            yield Fault(
                start.line, "srun does not inherit --cpus-per-task",
                'add --cpus-per-task="$SLURM_CPUS_PER_TASK" to srun',
            )  # fmt: skip


@_rule("mask-with-cores", "the two contradict each other", LTM25 + "202-Binding.md")
def _mask_with_cores(job: Job) -> Iterator[Fault]:
    for start in job.script.starts:
        if re.search(r"(mask|map)_cpu", start.value("cpu-bind")) and "cpus-per-task" in start.names():
            yield Fault(
                start.line, "srun has both a CPU mask and --cpus-per-task", "remove --cpus-per-task from this srun"
            )


@_rule("export-none", "tasks do not get PATH and other variables", SRUN)
def _export_none(job: Job) -> Iterator[Fault]:
    """Find --export=NONE in the head of a script that does not undo it for srun."""
    script = job.script
    given = any(job.variables("SLURM_EXPORT_ENV")) or any(
        re.match(r"unset\b.*\bSLURM_EXPORT_ENV\b", call.text) for call in script.calls
    )
    if given or not script.starts or any("export" in start.names() for start in script.starts):
        return
    for each in script.options:
        if each.name == "export" and each.value.upper() == "NONE":
            yield Fault(each.line, "srun inherits --export=NONE", "add: export SLURM_EXPORT_ENV=ALL")


@_rule("output-folder", "the job fails without any output if the folder does not exist", SLURM)
def _output_folder(job: Job) -> Iterator[Fault]:
    """Find a folder of the output that the job itself creates: Slurm opens the file before the job runs."""
    made = {
        word.rstrip("/").removeprefix("./")
        for call in job.script.calls
        if call.text.startswith("mkdir ")
        for word in call.text.split()[1:]
    }
    for each in job.script.options:
        folder = each.value.rpartition("/")[0].removeprefix("./")
        if each.name in {"output", "error"} and folder and folder in made:
            yield Fault(each.line, f"the job creates the folder {folder} of --{each.name} too late", "create it first")


@_rule("cache-on-first-node", "the folder does not exist on the other nodes", MIOPEN)
def _cache_on_first_node(job: Job) -> Iterator[Fault]:
    """Find folders for caches of MIOpen that the batch shell creates."""
    if job.script.nodes < 2:  # noqa: PLR2004 - one node is the first node
        return
    caches = [
        value for _, name, value in job.variables("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "MIOPEN_USER_DB")
    ]
    for call in job.script.calls:
        makes = not call.depth and re.match(r"(mktemp -d|mkdir)\b", call.text)
        of_cache = any((each and each in call.text) or f"$({call.text})" in each for each in caches)
        if makes and (of_cache or "MIOPEN" in call.text):
            yield Fault(
                call.line,
                "the folder is created on the first node only",
                "create it in the task: srun sh -c 'mkdir -p …'",
            )


@_rule("c10d-order", "rank 0 may be on another node than MASTER_ADDR", C10D)
def _c10d_order(job: Job) -> Iterator[Fault]:
    for call in job.script.calls:
        if job.script.nodes > 1 and any(value == "c10d" for value, _ in option_values(call, "rdzv[-_]backend")):
            yield Fault(
                call.line,
                "c10d assigns ranks in any order, and ignores --node-rank",
                "use --node-rank and --master-addr",
            )


@_rule("versioned-library", "the mount fails after the next update", DAWN + "setup_apptainer.sh")
def _versioned_library(job: Job) -> Iterator[Fault]:
    for call in job.script.calls:
        for library in re.findall(r"/usr/lib(?:64)?/\S*?(lib[\w+-]+\.so\.\d+\.\d+\.\d+[.\d]*)", call.text):
            yield Fault(
                call.line, f"the name of {library} changes with each update", "find it in the job: ls lib….so.*"
            )


@_rule("gdr-phb", "jobs on several nodes hang with ROCm 7; level 3 is the default from ROCm 6.2", PHB)
def _gdr_phb(job: Job) -> Iterator[Fault]:
    amd = job.site.node.gpu_vendor == "amd" or re.search(
        r"rocm|miopen|(rocr|hip)_\w+=|\$\{?(rocr|hip)_|mi[23]\d\d", job.script.raw, re.IGNORECASE
    )
    for line, _, value in job.variables("NCCL_NET_GDR_LEVEL"):
        if amd and value == "PHB":
            yield Fault(line, "NCCL_NET_GDR_LEVEL=PHB hangs with ROCm 7", "remove it with ROCm 6.2 and later")


@_rule("ofi-on-one-node", "the network is not configured for jobs of one node", OLCF)
def _ofi_on_one_node(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("NCCL_NET"):
        if value == "OFI" and job.script.nodes == 1:
            yield Fault(line, "NCCL_NET=OFI in a job of one node", "remove it, or use NCCL_NET=Socket")


@_rule("plugin-twice", "NCCL does not start", CSCS)
def _plugin_twice(job: Job) -> Iterator[Fault]:
    nets = [value for _, _, value in job.variables("NCCL_NET")]
    for line, _, value in job.variables("NCCL_NET_PLUGIN"):
        if value == "ofi" and nets:
            yield Fault(line, "both NCCL_NET_PLUGIN=ofi and NCCL_NET are set", "set one of the two")


@_rule("memhooks", "the cache of libfabric and the plugin of NCCL wait for each other", OLCF)
def _memhooks(job: Job) -> Iterator[Fault]:
    for line, _, value in job.variables("FI_MR_CACHE_MONITOR"):
        if value == "memhooks":
            yield Fault(line, "FI_MR_CACHE_MONITOR=memhooks can deadlock", "use userfaultfd, or kdreg2 if available")


@_rule("fast-path-off", "communication falls back to sockets or host memory", NCCL)
def _fast_path_off(job: Job) -> Iterator[Fault]:
    for line, name, value in job.variables("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if value == "1":
            yield Fault(line, f"{name}=1 disables a fast path", "remove it, unless you debug")


@_rule("blocking-launch", "it slows down the job; it is for debugging", TORCH)
def _blocking_launch(job: Job) -> Iterator[Fault]:
    for line, name, value in job.variables("CUDA_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        if value not in {"", "0"}:
            yield Fault(line, f"{name} makes every kernel wait for the previous one", "remove it for production runs")
