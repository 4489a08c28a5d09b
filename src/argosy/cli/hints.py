"""Tables of hints: commands, options and values of other tools, and what to type in Argosy; data only."""

from __future__ import annotations

from collections.abc import Mapping

from argosy.slurm.sbatch import HETEROGENEOUS_HINT

COMMAND_HINTS: Mapping[str, str] = {
    "exec": "argosy run IMAGE -- COMMAND; in a running job: argosy attach JOB -- COMMAND",
    **dict.fromkeys(("pull", "migrate"), "argosy images pull docker://NAME"),
    "push": "argosy images push IMAGE oras://REGISTRY/NAME",
    **dict.fromkeys(("inspect", "info"), "argosy images info IMAGE"),
    **dict.fromkeys(("status", "ps", "squeue"), "argosy jobs"),
    **dict.fromkeys(("list", "ls"), "argosy images ls, argosy jobs or argosy sites ls"),
    "show": "argosy images info IMAGE, argosy jobs show JOB or argosy sites show NAME",
    **dict.fromkeys(("rm", "remove", "delete"), "argosy images rm NAME, or argosy cache gc"),
    "create": "argosy build FILE -o IMAGE",
    **dict.fromkeys(("start", "submit"), "argosy launch IMAGE -- COMMAND"),
    "stop": "argosy cancel JOB, or argosy sessions stop NAME",
    "sbatch": "argosy launch IMAGE -- COMMAND; to translate a job script: argosy import job.sh",
    "srun": "argosy launch IMAGE -- COMMAND; in an allocation, add --in-allocation",
    "torchrun": "argosy launch IMAGE --launcher torchrun -- COMMAND",
    "mpirun": "argosy launch IMAGE --launcher mpi -- COMMAND",
    "salloc": "argosy launch IMAGE --interactive",
    **dict.fromkeys(("scancel", "kill"), "argosy cancel JOB"),
    **dict.fromkeys(("sinfo", "partitions"), "argosy queues"),
    "new": "argosy wrap new for a wrapped environment, argosy sites new for a site profile",
    "install": "argosy wrap environment.yml --prefix DIR",
    "clean": "argosy cache gc",
    "freeze": "argosy images freeze IMAGE",
    **dict.fromkeys(("export", "convert"), "argosy images export IMAGE --format FORMAT -o FILE"),
    "diff": "argosy images diff ONE OTHER",
    "docker": "argosy run IMAGE -- COMMAND; docker starts it with --runtime docker",
    "podman": "argosy run IMAGE -- COMMAND; podman starts it with --runtime podman",
    "podman-hpc": "argosy run IMAGE -- COMMAND; podman-hpc starts it with --runtime podman-hpc",
    **dict.fromkeys(("apptainer", "singularity"), "argosy run IMAGE -- COMMAND; argosy shell IMAGE"),
    "enroot": "argosy run IMAGE -- COMMAND; enroot starts it with --runtime enroot",
    "diagnose": "argosy why JOB",
    "lint": "argosy sites lint NAME",
    "preflight": "argosy check IMAGE --site NAME",
    "version": "argosy --version",
    "docs": "argosy COMMAND --help",
}
"""Command of another tool -> what to type."""

GPU_HINT = "GPUs are available in the container without an option; --gpu {} forces this method"
TERMINAL_HINT = "no option is needed: the container uses your terminal"
SITE_FLAGS_HINT = "the site's profile adds the flags of podman-hpc: argosy launch IMAGE --site NAME -- COMMAND"
INDEX_HINT = "write it on a line of requirements.txt, as for pip; for PyTorch's own index use --torch-backend"
COMMAND_HINT = "argosy wrap selects programs with -w PROGRAM,…; other commands accept a command after --"
USER_HINT = "you are the same user in the container; 'argosy run --dev --fakeroot' makes you root"
SHARED_HINT = "no option is needed: the container shares network, memory and processes of the host"
CLUSTER_HINT = "--site NAME selects the site; for another cluster of the same Slurm, set SLURM_CLUSTERS=NAME"

OPTION_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("--index-url", "--extra-index-url", "--find-links"), INDEX_HINT),
    "--dev": "start argosy shell IMAGE --dev, or argosy run IMAGE --dev, in the allocation; launch has --with",
    "--explain": "argosy explain, with the arguments of the launch, prints the source of each value",
    "--nv": GPU_HINT.format("nv"),
    "--rocm": GPU_HINT.format("rocm"),
    "--nvccli": GPU_HINT.format("nvccli"),
    "--device": GPU_HINT.format("cdi"),
    **dict.fromkeys(("--command", "--commands"), COMMAND_HINT),
    **dict.fromkeys(("-i", "-it", "-t", "--tty"), TERMINAL_HINT),
    "-e": "use --env NAME=VALUE",
    **dict.fromkeys(("--volume", "--mount"), "use --bind SRC:DST"),
    "--cleanenv": "software variables of the host do not enter the container; use --contain to hide its folders",
    "--containall": "use --contain",
    **dict.fromkeys(("--overlay", "--writable", "--writable-tmpfs"), "use --dev to make the image writable"),
    "--fakeroot": "use --dev --fakeroot of 'argosy run' to be root in the container",
    **dict.fromkeys(("--mpich", "--cuda-mpi", "--nccl", "--cvmfs"), SITE_FLAGS_HINT),
    "--rm": "no option is needed: the container leaves nothing behind",
    "--entrypoint": "give the command after --: argosy run IMAGE -- COMMAND",
    "--gpus-per-task": "use --gpus-per-node N; add --sbatch-arg=--gpu-bind=single:1 for one GPU per rank",
    "--ntasks-per-gpu": "use --ranks N; the default is one rank per GPU",
    "--mem-per-cpu": "use --mem SIZE per node, or --mem-per-gpu SIZE",
    "--dependency": "use --after JOBS, or --sbatch-arg=--dependency=…",
    "--wrap": "give the command after --: argosy launch IMAGE -- COMMAND",
    "--wait": "use --follow",
    "--export": "use --env NAME=VALUE",
    "--container-image": "give the image as the first argument: argosy launch IMAGE -- COMMAND",
    "--container-mounts": "use --bind SRC:DST",
    "--cpu-bind": "Argosy binds ranks to cores by the site's profile; 'argosy explain' shows how",
    "--gpu-bind": "use --sbatch-arg=--gpu-bind=…; without it, each rank sees all GPUs of its node",
    **dict.fromkeys(("--het-group", "--pack-group"), f"Argosy starts no heterogeneous jobs: {HETEROGENEOUS_HINT}"),
    **dict.fromkeys(
        ("--standalone", "--rdzv-endpoint", "--rdzv-backend", "--rdzv-id"),
        "no option is needed: Argosy sets up the rendezvous",
    ),
    "--master-addr": "no option is needed: Argosy sets MASTER_ADDR",
    "--master-port": "no option is needed: Argosy sets MASTER_PORT",
    "--node-rank": "no option is needed: Argosy sets the rank of each node",
    "--max-restarts": "use --torchrun-arg=--max-restarts=N",
    "--tee": "use --torchrun-arg=--tee=3, or --log-dir DIR",
    "--tag": "use -o FILE; 'argosy images pull FILE NAME:TAG' adds it to the catalog",
    **dict.fromkeys(("-r", "--requirement"), "give the file itself: argosy build requirements.txt -o IMAGE"),
    "--prefix": "argosy wrap FILE --prefix DIR installs into a folder",
    **dict.fromkeys(("--ipc", "--shm-size", "--ulimit", "--network", "--net", "--pid", "--publish"), SHARED_HINT),
    **dict.fromkeys(("-u", "--user"), USER_HINT),
    "-w": "use --workdir DIR",
    "-d": "'argosy shell IMAGE --detach NAME' starts a session that continues when you leave",
    **dict.fromkeys(("-M", "--cluster", "--clusters"), CLUSTER_HINT),
    "--from": "use --base BASE",
}
"""Option of another tool that Argosy does not have -> what to do."""

COMMAND_OPTION_HINTS: Mapping[str, Mapping[str, str]] = {
    "argosy": dict.fromkeys(
        ("-v", "--verbose"), "write it after the command: argosy run --verbose …; argosy --version prints the version"
    ),
    "argosy build": {
        "--fakeroot": "no option is needed: Argosy simulates root, and --build-backend chooses how",
        "--python": "the base has the Python; another one comes from conda: python=3.12 in environment.yml",
    },
    "argosy launch": {
        "-f": "use --follow",
        "-e": "use --env NAME=VALUE for a variable, or --error FILE for Slurm's error stream",
    },
    "argosy run": {"--gpus": GPU_HINT.format("nv")},
    "argosy shell": {"-c": "for a command: argosy run IMAGE -- sh -c 'COMMAND'", "--gpus": GPU_HINT.format("nv")},
    "argosy wrap new": {"-p": "use --prefix DIR", "--gpus": GPU_HINT.format("nv")},
    "argosy explain": {"--dry-run": "remove it: 'argosy explain' starts nothing"},
}
"""Command -> its hints, which take precedence."""


CHOICE_HINTS = {
    "cuda": "nv",
    "nvidia": "nv",
    "amd": "rocm",
    "all": "auto",
    "squashfs": "sqsh",
    "tar": "oci-archive",
    "docker": "oci",
    "pip": "requirements",
    "conda": "explicit",
    "accelerate": "torchrun",
    "deepspeed": "torchrun",
    "mpiexec": "mpi",
}
"""Value of another tool -> the choice that means it."""


MISSING_HINTS = {
    "argosy wrap new --prefix": "for example: argosy wrap environment.yml --prefix ~/my-environment",
    "argosy bundle --output": "for example: argosy bundle environment.yml -o my-image.tar",
}
"""Command and its missing option -> a whole line."""


WRAP_HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("rm", "remove", "delete", "del", "uninstall"),
        "a prefix is a folder: remove it with rm -r DIR; 'argosy wrap prune DIR' removes its old versions",
    ),
    **dict.fromkeys(
        ("ls", "list"),
        "did you mean 'argosy wrap history'? It lists the versions of one prefix; no list of prefixes is kept: each is "
        "a folder, to remove with rm -r DIR",
    ),
}
"""Command of another tool for environments -> what to do with a prefix."""


SAME_MEANING = (
    ("ls", "list"),
    ("info", "show", "inspect", "describe", "list", "ls", "status", "cat"),
    ("gc", "clean", "clear", "prune", "purge"),
    ("rm", "remove", "delete", "del"),
    ("gc", "rm", "remove", "delete", "del"),
    ("stop", "kill", "end", "cancel", "rm", "remove", "delete"),
    ("unset", "rm", "remove", "delete", "del"),
    ("new", "create", "add", "generate", "draft"),
    ("pull", "add", "download", "fetch", "get", "import"),
    ("push", "upload"),
    ("send", "copy", "cp", "scp", "upload"),
    ("tag", "alias", "rename", "mv"),
    ("lint", "check"),
    ("history", "ls", "list", "versions", "log"),
    ("diff", "compare"),
)
"""Names of subcommands with one meaning: Argosy's and those of other tools."""

ALONE = {"argosy config": "prints all values", "argosy jobs": "lists your jobs"}
"""Group that lists without a subcommand -> what it does."""
