"""The commands of job scripts that start no program of the job, by what they do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Role(StrEnum):
    """The purpose of a command in a job script."""

    PROGRAM = "start a program of the job"
    LOST = "start programs in a way that is not translated"
    PRINT = "print"
    CONTROL = "control the shell of the script"
    TEST = "test a condition"
    FILES = "prepare files"
    TOOL = "change files, compile, download"
    INSTALL = "install packages, fetch images"
    SOURCE = "read a shell file"
    MODULE = "load modules of the host"
    SHELL = "change the folder, a limit or a variable of the shell"


_NAMES: Mapping[Role, str] = {
    Role.PRINT: """
        echo printf date hostname pwd env printenv nvidia-smi rocm-smi amd-smi xpu-smi ls squeue sacct nproc lscpu
        numactl free cat uname df du id whoami module-info sstat sinfo seff top ibstat ibv_devinfo tput head tail wc
        lsb_release mpstat vmstat iostat module_list getconf seq basename dirname realpath readlink tee sort uniq cut
        tr uptime lspci lstopo hwloc-ls file stat ldd figlet locale tty
    """,
    Role.CONTROL: """
        true : false set shopt exit trap wait sleep clear alias return break continue local read mapfile
        readarray shift let hash export declare typeset readonly disown kill pkill killall sync jobs getopts
    """,
    Role.TEST: "test [ [[ grep egrep fgrep which type cmp diff pgrep command",
    Role.FILES: "mkdir cp rsync ln touch tar unzip",
    Role.TOOL: """
        rm rmdir mv sed awk gawk chmod chown chgrp find xargs gzip gunzip bzip2 xz zstd zip split mktemp dd truncate
        sbcast setfacl lfs scp sftp curl wget git svn aria2c gsutil aws rclone make cmake ninja gcc g++ gfortran nvcc
        hipcc icc icx ifort ifx mpicc mpicxx mpif90 cc CC ftn scontrol scancel sacctmgr sattach mail sendmail bc jq
        expr tac paste join comm nl nvidia-modprobe md5sum sha256sum patch crontab logger mkfifo accelerate
    """,
    Role.INSTALL: """
        pip pip3 conda mamba micromamba apt apt-get docker podman podman-hpc apptainer singularity
        bsc_singularity shifterimg
    """,
    Role.SOURCE: "source .",
    Role.MODULE: "module ml spack",
    Role.SHELL: "cd pushd popd ulimit umask unset",
    Role.LOST: """
        parallel ssh pdsh clush screen tmux watch eval coproc sbatch aprun jsrun flux prun prterun poe
        runApplication runParallel foamJob
    """,
}  # fmt: skip
ROLES: Mapping[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}
"""Name of a command -> its role; any other command is a program of the job."""

SUBCOMMANDS: Mapping[tuple[str, ...], Role] = {
    ("scontrol", "show"): Role.PRINT,
    ("ray", "start"): Role.LOST,
    ("ray", "stop"): Role.CONTROL,
    **dict.fromkeys((("uv", "pip"), ("uv", "sync"), ("uv", "venv"), ("poetry", "install")), Role.INSTALL),
    **{(name, "run"): Role.LOST for name in ("conda", "mamba", "micromamba")},
}
"""Name and first argument of a command -> its role."""

COMPUTING = frozenset({"read", "mapfile", "readarray", "let", "getopts"})
"""Commands that set the variables in their arguments."""

HARMLESS = frozenset({Role.PRINT, Role.CONTROL, Role.TEST})
"""Roles of the commands that a job does not need."""
