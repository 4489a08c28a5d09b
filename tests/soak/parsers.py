"""Every reader of foreign text and bytes, with samples of what it reads.

A reader gets bytes as a disk or a program gives them, and a scratch folder.  Replies go to the function that a command
calls, so that what it does with them is tried, too.  Samples are files of the repository and texts of its unit tests.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from uuid import UUID

from argosy.builder import freeze
from argosy.builder.bases.definitions import Format, refuse_invalid_definition
from argosy.core.process import FakeRunner, Reply
from argosy.diagnostics.check import parse_contents
from argosy.diagnostics.discover.discover import DiscoverRequest, discover_site
from argosy.diagnostics.discover.replies import LOGIN
from argosy.diagnostics.validate.merge import read_result
from argosy.diagnostics.verify.verify import verify_job, verify_logs
from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_own_file, read_signatures
from argosy.host.cdi import choose_devices, parse_cdi
from argosy.images import oci
from argosy.images.identify import identify_file
from argosy.images.libraries import parse_torch
from argosy.images.open import open_image
from argosy.images.registry import convert, skopeo
from argosy.images.registry.references import parse_reference
from argosy.images.sif.read import verify_sif
from argosy.images.sif.write import plan_json_part, plan_system_part, whole_of, write_sif
from argosy.images.squashfs.join import join_squashfs
from argosy.images.squashfs.tables import device_nodes, unused_share
from argosy.jobs.first_failure import find_first_failure
from argosy.jobs.history import past_jobs
from argosy.jobs.query import find_job
from argosy.jobs.queues import list_accounts, list_qos, list_queues, with_partition_qos
from argosy.jobs.scheduler import list_jobs
from argosy.launch.import_script.files import read_script_text, render_jobs
from argosy.launch.import_script.importer import import_script
from argosy.recipes.condarc import Condarc, parse_condarc
from argosy.recipes.lock import parse_lock
from argosy.recipes.project_file import read_project
from argosy.recipes.read import read_recipe
from argosy.recipes.user_config import read_files
from argosy.runtimes.edf import parse_edf
from argosy.sites.binding import parse_ranges
from argosy.sites.lint.profile_rules import lint_named_profile
from argosy.sites.lint.script_rules import lint_script
from argosy.sites.read import DATA, read_site
from argosy.wrap.new_version import parse_probe
from argosy.wrap.request import parse_environ
from tests.soak import samples
from tests.unit.diagnostics import test_discover
from tests.unit.machines import make_host, make_session
from tests.unit.recipes import test_other_locks, test_pip_locks, test_pyproject, test_uv_locks

TESTS = Path(__file__).parents[1]

Read = Callable[[bytes, Path], object]


class Parser:
    """A reader and its samples, which are made when they are needed."""

    def __init__(self, name: str, read: Read, make_samples: Callable[[], Sequence[bytes]]) -> None:
        self.name = name
        self.read = read
        self._make_samples = make_samples

    @cached_property
    def samples(self) -> tuple[bytes, ...]:
        return tuple(self._make_samples())


def _texts(*texts: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [text.encode() for text in texts]


def _constants(module: ModuleType) -> Callable[[], Sequence[bytes]]:
    """Take the texts that a module of unit tests defines."""
    texts = [value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]
    return _texts(*(text for text in texts if "\n" in text))


def _files(pattern: str, folder: Path = TESTS) -> Callable[[], Sequence[bytes]]:
    return lambda: [path.read_bytes() for path in sorted(folder.glob(pattern)) if path.is_file()]


def _text(data: bytes) -> str:
    """Decode as Argosy decodes what programs print."""
    return data.decode(errors="replace")


def _file(name: str, read: Callable[[Path], object]) -> Read:
    """Give the bytes as a file to a reader of files."""

    def write_and_read(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return write_and_read


def _recipe(name: str) -> Read:
    return _file(name, lambda path: read_recipe([name], environment={"TOKEN": "x"}, cwd=path.parent))


def _replying(ask: Callable[..., object]) -> Read:
    """Let every program print these bytes."""

    def reply_and_ask(data: bytes, folder: Path) -> object:
        runner = FakeRunner([((), Reply(0, _text(data), ""))])
        return ask(make_session(folder, make_host("apptainer", "squeue", "srun"), runner))

    return reply_and_ask


def _recorded(name: str, ask: Callable[..., object]) -> Read:
    """Put the bytes into the record of job 7, whose other files are right."""

    def write_and_ask(data: bytes, folder: Path) -> object:
        record = folder / "runs/20260101-000000-abc"
        shutil.rmtree(record, ignore_errors=True)
        record.mkdir(parents=True)
        (record / "out").write_text("srun: error: n1: task 0: Exited with exit code 3\n")
        for file, text in samples.RECORD.items():
            (record / file).write_text(text.replace("OUTPUT", str(record / "out")))
        (record / name).write_bytes(data)
        reply = Reply(0, f"JobId=7 JobState=FAILED Restarts=0 ExitCode=3:0 NodeList=n1 StdOut={record}/out\n", "")
        return ask(make_session(folder, make_host("apptainer"), FakeRunner([(("scontrol",), reply)])))

    return write_and_ask


def _discover(data: bytes, folder: Path) -> object:
    """Let Slurm and the node print parts of the input, and read the profile that was made."""
    parts = _text(data).split(samples.CUT)
    replies = [(words, Reply(0, parts[number % len(parts)], "")) for number, words in enumerate(LOGIN.values())]
    replies += [(("sh", "-c"), Reply(0, "", "")), (("srun", "--nodes=1"), Reply(0, parts[-1], ""))]
    session = make_session(folder, make_host("srun", cwd=str(folder)), FakeRunner(replies))
    file = folder / "made.toml"
    file.unlink(missing_ok=True)
    discover_site(session, DiscoverRequest("made", file, "2026-11-21"))
    return read_site(str(file))


def _discover_samples() -> Sequence[bytes]:
    parts = (test_discover.CONFIG, test_discover.NODES, test_discover.PARTITIONS, test_discover.MPI, "Usage: srun")
    answers = dict(test_discover.ANSWERS)
    nodes = [test_discover.printed(answers), test_discover.printed(answers | {"nvidia-smi": "", "rocm": samples.ROCM})]
    return [samples.CUT.join((*parts, node)).encode() for node in nodes]


def _sbatch(data: bytes, folder: Path) -> object:
    path = folder / "job.sh"
    path.write_bytes(data)
    imported = import_script(str(path), read_script_text(path))
    return render_jobs(imported.jobs)


def _lint_site(path: Path) -> object:
    return lint_named_profile(str(path), (DATA,))


def _manifest(data: bytes, _folder: Path) -> object:
    """Read a manifest as a pull does: choose a platform, look for a SIF, compare it with the configuration."""
    text = _text(data)
    skopeo.parse_manifest(text, "amd64", "x")
    oci.refuse_other_layers(oci.OciConfig("", "", layers=1), text, "x")
    return convert.parse_sif_layer(text, parse_reference("docker://x/y"))


def _oci_config(data: bytes, folder: Path) -> object:
    config = oci.parse_config(_text(data), "x")
    texts = oci.render_oci_env(config.variables), oci.render_runscript(config), oci.render_labels(config)
    tree = Path(tempfile.mkdtemp(dir=folder))
    oci.prepare_rootfs(tree, config)
    shutil.rmtree(tree)
    return texts


def _frozen(data: bytes, _folder: Path) -> object:
    text = _text(data)
    parsers = (freeze.parse_dist, freeze.parse_dpkg, freeze.parse_rpm, freeze.parse_conda)
    return [freeze.parse_record(parse, text) for parse in parsers]


def _image(data: bytes, folder: Path) -> object:
    path = folder / "x.sif"
    path.write_bytes(data)
    identify_file(path)
    open_image(path)
    return verify_sif(path)


def _squashfs(data: bytes, folder: Path) -> object:
    path = folder / "x.sqfs"
    path.write_bytes(data)
    whole = whole_of(path)
    for read in (unused_share, device_nodes):
        read(whole)
    return join_squashfs(whole, [whole], time=0)


def _packed(*compressors: str) -> Iterator[bytes]:
    """Pack small trees with each compressor that mksquashfs has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tree/d/e").mkdir(parents=True)
        for number in range(40):
            (folder / f"tree/d/{number}").write_text(str(number) * number)
        (folder / "tree/l").symlink_to("/d")
        for compressor in compressors:
            out = folder / f"{compressor}.sqfs"
            words = ("mksquashfs", str(folder / "tree"), str(out), "-comp", compressor, "-noappend", "-quiet")
            if subprocess.run(words, check=False, capture_output=True).returncode == 0:
                yield out.read_bytes()


def _sif_samples() -> Sequence[bytes]:
    found = []
    with tempfile.TemporaryDirectory() as name:
        for number, packed in enumerate(_packed("gzip", "zstd")):
            system, out = Path(name, f"{number}.sqfs"), Path(name, f"{number}.sif")
            system.write_bytes(packed)
            parts = [plan_system_part(whole_of(system), arch="amd64")]
            parts += [plan_json_part("argosy.lock", samples.LOCK.encode())] * number
            write_sif(out, parts, uuid=UUID(int=7), time=1, arch="amd64")
            found.append(out.read_bytes())
    return found


def _signatures(path: Path) -> object:
    return find_errors("NCCL WARN Call to connect failed\n", read_own_file(path).signatures)


def _user_config(path: Path) -> object:
    return read_files({"XDG_CONFIG_HOME": str(path.parents[1])})


def _verify(data: bytes, folder: Path) -> object:
    path = folder / "log"
    path.write_bytes(data)
    return verify_logs(make_session(folder, make_host()), [str(path)], "", 2)


def _why(data: bytes, _folder: Path) -> object:
    text = _text(data)
    return find_errors(text, read_signatures()), find_first_failure(text)


def _cdi(data: bytes, _folder: Path) -> object:
    results = [choose_devices(parse_cdi(_text(data), "nvidia.json"))]
    return [*results, choose_devices(parse_cdi(_text(data), "nvidia.yaml"))]


def _config_file(data: bytes, folder: Path) -> object:
    (folder / "argosy").mkdir(exist_ok=True)
    return _file("argosy/config.toml", _user_config)(data, folder)


def _queues(session: object) -> object:
    accounts = list_accounts(session)  # type: ignore[arg-type]
    queues = with_partition_qos(session, list_queues(session))  # type: ignore[arg-type]
    return queues, list_qos(session, accounts, queues)  # type: ignore[arg-type]


LOCKS = {
    "poetry.lock": _constants(test_pip_locks),
    "Pipfile.lock": _texts(samples.PIPFILE_LOCK),
    "uv.lock": _constants(test_uv_locks),
    "pylock.toml": _constants(test_other_locks),
    "pixi.lock": _constants(test_other_locks),
    "conda-lock.yml": _constants(test_other_locks),
    "pyproject.toml": _constants(test_pyproject),
}

_TABLE = (
    *(Parser(name, _recipe(name), made) for name, made in LOCKS.items()),
    Parser("environment.yml", _recipe("environment.yml"), _files("corpus/env/*.yml")),
    Parser("requirements.txt", _recipe("requirements.txt"), _files("corpus/env/*.txt")),
    Parser("condarc", lambda data, _: parse_condarc(_text(data), "condarc", Condarc()), _texts(samples.CONDARC)),
    Parser("dockerfile", _file("Dockerfile", lambda path: refuse_invalid_definition(path, Format.DOCKERFILE)),
           _texts(samples.DOCKERFILE)),
    Parser("definition", _file("x.def", lambda path: refuse_invalid_definition(path, Format.DEFINITION)),
           _texts(samples.DEFINITION)),
    Parser("import", _sbatch, _files("golden-scripts/**/*.sh")),
    Parser("lint", lambda data, _: lint_script("job.sh", _text(data), read_site("lumi-g")),
           _files("golden-scripts/**/*.sh")),
    Parser("squeue", _replying(list_jobs), _texts(samples.SQUEUE)),
    Parser("scontrol", _replying(lambda session: find_job(session, "7")), _texts(samples.SCONTROL)),
    Parser("sacct", _replying(lambda session: find_job(session, "7")), _texts(samples.SACCT)),
    Parser("sinfo", _replying(_queues), _texts(samples.SINFO, samples.SACCTMGR)),
    Parser("node-list", lambda data, _: parse_ranges(_text(data)), _texts(*samples.NODE_LISTS)),
    *(Parser(f"record-{name}", _recorded(name, lambda session: (verify_job(session, "7"), past_jobs(session, most=9))),
             _texts(text)) for name, text in samples.RECORD.items()),
    Parser("sites-new", _discover, _discover_samples),
    Parser("validate", _file("result.json", read_result), _texts(samples.RESULT)),
    Parser("verify", _verify, _files("corpus/nccl/*.log")),
    Parser("why", _why, _files("corpus/logs/*.log")),
    Parser("signatures", _file("signatures.toml", _signatures), _texts(samples.SIGNATURES)),
    Parser("site", _file("here.toml", _lint_site), lambda: [(DATA / f"{n}.toml").read_bytes() for n in samples.SITES]),
    Parser("argosy.toml", _file("argosy.toml", read_project), _texts(*samples.PROJECTS)),
    Parser("config.toml", _config_file, _texts(samples.CONFIG)),
    Parser("edf", lambda data, _: parse_edf(_text(data), "x.toml"), _texts(samples.EDF)),
    Parser("argosy.lock", lambda data, _: parse_lock(_text(data), "argosy.lock"), _texts(samples.LOCK)),
    Parser("manifest", _manifest, _texts(*samples.MANIFESTS)),
    Parser("oci-config", _oci_config, _texts(samples.OCI_CONFIG)),
    Parser("reference", lambda data, _: str(parse_reference(_text(data))), _texts(*samples.REFERENCES)),
    Parser("sif", _image, _sif_samples),
    Parser("squashfs", _squashfs, lambda: list(_packed("gzip", "zstd", "xz", "lz4", "lzo"))),
    Parser("freeze", _frozen, _texts(*samples.PACKAGES)),
    Parser("cdi", _cdi, _texts(samples.CDI)),
    Parser("environ", lambda data, _: parse_environ(_text(data), "x"), _texts(samples.ENVIRON)),
    Parser("probe", lambda data, _: parse_probe(_text(data)), _texts(samples.PROBE)),
    Parser("contents", lambda data, _: (parse_contents(_text(data)), parse_torch(_text(data))),
           _texts(samples.CONTENTS)),
)  # fmt: skip

PARSERS = {parser.name: parser for parser in _TABLE}
