"""Read the options of container commands in a job script: Apptainer, docker, podman-hpc, shifter; pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from argosy.launch.import_script.program import NO_SHORT, Program
from argosy.slurm.sbatch_options import Option, split_options
from argosy.slurm.script_words import Part

_APPTAINER_FLAGS = """
    nv rocm nvccli contain containall cleanenv no-home writable-tmpfs fakeroot ipc pid uts net userns unsquash
    writable compat keep-privs no-privs allow-setuid disable-cache no-init sharens no-umask no-eval no-https nohttps
    underlay docker-login no-pid no-setgroups tmp-sandbox no-tmp-sandbox oom-kill-disable no-rocm no-nv no-compat oci
    no-oci verbose version help nocolor c C e f i p u w silent quiet debug q s d v h
"""
APPTAINER_FLAGS = frozenset(_APPTAINER_FLAGS.split())
"""Options of ``apptainer exec``, and of apptainer itself, that take no value (apptainer_exec(1))."""

APPTAINER_VALUES = re.compile(
    r"add-caps|app|apply-cgroups|authfile|B|bind|blkio-weight(-device)?|cdi-dirs|config|cpu-shares|cpus|cpuset-\w+|cwd"
    r"|device|dns|docker-(host|username|password)|drop-caps|env|env-file|fusemount|H|home|hostname|memory[\w-]*|mount"
    r"|network|network-args|no-mount|o|overlay|pem-path|pids-limit|pwd|S|scratch|security|shell|W|workdir"
)
"""Options of ``apptainer exec`` that take a value."""

_DOCKER_FLAGS = """
    rm rmi interactive tty it ti i t d detach init privileged gpu nccl mpi cuda-mpi cvmfs openmpi-pmi2 openmpi-pmix
    mpich scratch cfs read-only read-only-tmpfs P publish-all sig-proxy no-healthcheck oom-kill-disable
    disable-content-trust q quiet help tls-verify replace no-hosts no-hostname env-host http-proxy unsetenv-all
    passwd use-api-socket
"""
DOCKER_FLAGS = frozenset(_DOCKER_FLAGS.split())
"""Options of ``docker run`` and ``podman-hpc run`` that take no value."""

DOCKER_VALUES = re.compile(
    r"add-host|annotation|arch|a|attach|blkio-weight|cap-(add|drop)|cgroup[\w-]*|cgroups|cidfile|conmon-pidfile|c|cpu[\w-]*"
    r"|cpus|creds|decryption-key|detach-keys|device[\w-]*|dns[\w-]*|domainname|e|entrypoint|env|env-file|env-merge|expose"
    r"|[gu]idmap|gpus|group-add|group-entry|h|hostname|health-\w[\w-]*|hooks-dir|image-volume|ip|ip6|init-path|ipc|isolation"
    r"|kernel-memory|l|label|label-file|link|log-driver|log-opt|m|mac-address|memory[\w-]*|mount|name|net|network"
    r"|network-alias|oom-score-adj|os|p|publish|passwd-entry|personality|pid|pids-limit|platform|pod|pull|requires|restart"
    r"|rootfs|runtime|sdnotify|seccomp-policy|secret|security-opt|shm-size[\w-]*|stop-signal|stop-timeout|storage-opt"
    r"|sub[gu]idname|sysctl|systemd|timeout|tmpfs|tz|u|ulimit|umask|unsetenv|user|userns|uts|v|variant|volume"
    r"|volume-driver|volumes-from|w|workdir"
)
"""Options of ``docker run`` and ``podman run`` that take a value."""

SHIFTER_VALUES = re.compile(r"i|image|V|volume|e|env|env-file|entrypoint|E|w|workdir|m|module")
"""Options of shifter that take a value."""


INSIDE = re.compile(r"(APPTAINERENV|SINGULARITYENV)_")
BINDS = frozenset({"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"})
"""Variables for Apptainer: the prefix of those of the container, and its bind mounts."""


def container_start(program: Program) -> int:
    """Return the index of ``apptainer exec`` in the arguments of another program; 0 if it is not there."""
    pairs = enumerate(pairwise(program.texts))
    return next((at for at, (name, verb) in pairs if at and CONTAINER.search(name) and verb in {"exec", "run"}), 0)


TYPESET_DASHES = ("\N{EN DASH}", "\N{EM DASH}", "\N{MINUS SIGN}")
"""Dashes that word processors and web pages put in place of the hyphens of an option."""

CONTAINER = re.compile(r"(^|/)(apptainer|singularity|bsc_singularity)$")


def read_container(program: Program) -> None:
    """Read ``apptainer exec [options] IMAGE``; `bsc_singularity` is the wrapper of MareNostrum 5."""
    texts = program.texts
    _, before = split_options(texts[1:], flags=APPTAINER_FLAGS, short=NO_SHORT)
    verb = texts[1 + before] if len(texts) > 1 + before else ""
    if verb not in {"exec", "run"}:
        program.is_done = True
        if verb in {"shell", "instance"}:
            program.obstacle = f"Argosy translates exec and run, not {verb}"
        return
    program.is_start = True
    start = 2 + before
    options, count = split_options(texts[start:], flags=APPTAINER_FLAGS, short=NO_SHORT, line=program.line)
    program.note_unknown_values(options, APPTAINER_VALUES)
    for option in options:
        _container_option(program, option)
    program.skip(start + count)
    if program.words:
        image = program.texts[0]
        if image.startswith(TYPESET_DASHES):
            program.obstacle = f"{image} begins with a dash of a text, not with '-': type the option again"
        program.keys["image"] = image
        program.skip(1)
    if verb == "run":
        program.words = ((Part("text", "/.singularity.d/runscript"),), *program.words)


def _container_option(program: Program, option: Option) -> None:
    """Translate an option of ``apptainer exec``."""
    match option.name:
        case "bind" | "B":
            program.add("bind", *option.value.split(","))
        case "env":
            for pair in option.value.split(","):
                _read_variable(program, pair)
        case "pwd" | "cwd" | "W":
            program.keys["workdir"] = option.value
        case "nv" | "rocm" | "nvccli":
            program.replaced.append(f"--{option.name}: Argosy chooses how the container gets its GPUs")
        case "contain" | "c" | "containall" | "C":
            program.keys["contain"] = True
        case "cleanenv" | "e":
            program.untranslated.append(
                "--cleanenv: Argosy passes your environment on, and drops what belongs to the host"
            )
        case name:
            program.untranslated.append(f"{'--' if len(name) > 1 else '-'}{name}: an option of {program.name}")


def read_docker(program: Program) -> None:
    """Read ``docker run``, ``podman run`` and ``podman-hpc run``."""
    texts = program.texts
    if texts[1:2] != ["run"]:
        program.is_done = True
        if texts[1:2] in (["exec"], ["start"], ["compose"]):
            program.obstacle = f"Argosy translates run, not {texts[1]}"
        return
    program.is_start = True
    options, count = split_options(texts[2:], flags=DOCKER_FLAGS, short=NO_SHORT)
    program.note_unknown_values(options, DOCKER_VALUES)
    for option in options:
        match option.name:
            case "v" | "volume":
                program.add("bind", option.value)
            case "e" | "env":
                _read_variable(program, option.value)
            case "w" | "workdir":
                program.keys["workdir"] = option.value
            case "rm" | "it" | "ti" | "i" | "t" | "gpu" | "gpus" | "nccl" | "mpi" | "cuda-mpi" | "network" | "ipc":
                program.replaced.append(f"{option}: Argosy starts the container")
            case name:
                program.untranslated.append(f"{'--' if len(name) > 1 else '-'}{name}: an option of {program.name}")
    program.skip(2 + count)
    if program.words:
        program.keys["image"] = f"docker://{program.texts[0]}"
        program.skip(1)


def _read_variable(program: Program, pair: str) -> None:
    """Read ``NAME=VALUE``; NAME alone passes the variable of the script's shell on."""
    name, given, value = pair.partition("=")
    if given:
        program.set_variable(name, value)
    else:
        program.untranslated.append(f"--env {name}: it passes your variable on; start the job with --env {name}")


def read_shifter(program: Program) -> None:
    """Read ``shifter --image=…``; without the option, the image is that of ``#SBATCH --image``."""
    program.is_start = True
    program.keys["image"] = ""
    options, count = split_options(program.texts[1:], short=NO_SHORT, flags=frozenset({"clearenv", "v", "verbose"}))
    program.note_unknown_values(options, SHIFTER_VALUES)
    for option in options:
        if option.name in {"image", "i"}:
            program.keys["image"] = _shifter_reference(option.value)
        elif option.name in {"env", "e"}:
            _read_variable(program, option.value)
        elif option.name in {"volume", "V"}:
            program.add("bind", *option.value.split(";"))
        else:
            program.untranslated.append(f"{option}: an option of shifter")
    program.skip(1 + count)


def shifter_image(keys: dict[str, Any]) -> str:
    """Return the image that the options of the job name for shifter."""
    names = (each.removeprefix("--image=") for each in keys.get("sbatch_arg", ()) if each.startswith("--image="))
    return _shifter_reference(next(names, "${SHIFTER_IMAGE}"))


def _shifter_reference(name: str) -> str:
    return f"docker://{name.removeprefix('docker:')}"


def pyxis_image(text: str) -> str:
    """Return a reference in the form of Apptainer: pyxis writes ``host#name``, without ``docker://``."""
    if text.startswith(("/", "./", "$", "~")) or text.endswith((".sqsh", ".sif")):
        return text
    return f"docker://{text.removeprefix('docker://').replace('#', '/')}"
