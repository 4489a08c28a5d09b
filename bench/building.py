"""Building: an environment of more than a hundred packages by Argosy and by cotainr's steps, from the same wheels.

cotainr unpacks the base (`apptainer build --sandbox`), installs conda and the environment into the folder, and packs
all of it (`apptainer build`).  Its conda cannot be had without conda-forge: its place is taken by `pip install` of the
same packages, which is quicker.  Wheels lie in a folder, so the network is in no figure.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from argosy.builder.records import BuildReport, Cost
from argosy.core.cache import fill_once
from argosy.images.flat import layer_source
from argosy.images.open import open_image
from argosy.images.squashfs.pack import run_pack
from argosy.images.unpack import unpack_source
from bench.conda_channel import conda_channel, environment_file
from bench.inputs import Inputs, bench_cache, bench_folder, open_session
from bench.meter import Usage, run, run_command, run_metered
from bench.place import call_apart, lab, new_file_system, why_no_lab
from bench.records import Budget, Outcome, Row, one

PACKAGES = (
    *("jupyterlab", "pandas", "matplotlib", "scikit-image", "sqlalchemy", "fastapi", "boto3", "typer", "pytest"),
    *("httpx", "networkx", "sympy", "polars", "plotly", "dask", "flask", "seaborn"),
)
QUICK_PACKAGES = ("rich", "httpx")
ONE_MORE = "colorama"
MEGA = 1e6

FASTER_THAN_COTAINR = Budget(12, at_least=True)
WARM_FASTER_THAN_COTAINR = Budget(100, at_least=True)
LESS_CPU_THAN_COTAINR = Budget(10, at_least=True)
FASTER_THAN_PIP = Budget(5, at_least=True)
ONE_CHANGED = Budget(10)
SAME_AGAIN = Budget(1)
ALL_SEEN = Budget(1.2)
OF_THE_FLOOR = Budget(1.2)
DISK = Budget(1)
MEMORY = Budget(1000)

CONDA_BUILDS = {"cold": "cold", "warm": "warm", "more": "one package more"}

FLOOR = (
    "the floor is the CPU time of three programs divided by the number of cores: zipfile unpacks the wheels, "
    "compileall compiles the modules that have byte code in the image, mksquashfs packs the packages"
)
UNPACK = "import sys, zipfile\nfor wheel in sys.argv[2:]:\n    zipfile.ZipFile(wheel).extractall(sys.argv[1])\n"


@dataclass(frozen=True, slots=True)
class Built:
    """One build: what it cost, and its own report."""

    usage: Usage
    report: BuildReport

    @property
    def cost(self) -> Cost:
        """Give what it says it took of disk and memory; nothing where nothing was done."""
        return self.report.cost or Cost(0, 0, 0)

    def step(self, name: str) -> float:
        """Give the seconds of a step."""
        return next(timing.seconds for timing in self.report.timings if timing.step == name)


def run_building(inputs: Inputs, *, quick: bool) -> Outcome:
    """Build cold, warm, with one package more, and the same again; then cotainr's steps where there is a lab."""
    packages = QUICK_PACKAGES if quick else PACKAGES
    wheels = fetched_wheels(packages, inputs)
    with new_file_system() as folder:
        (folder / "many.txt").write_text("".join(f"{name}\n" for name in packages))
        (folder / "one.txt").write_text(f"{ONE_MORE}\n")
        argosy = partial(_argosy, folder, wheels)
        base = str(inputs.base)
        cold = argosy("many.txt", "--base", base, "-o", "cold.sif")
        warm = argosy("many.txt", "--base", base, "-o", "warm.sif")
        again = argosy("--locked", "warm.sif", "-o", "warm.sif")
        argosy("one.txt", "--base", base, "-o", "one.sif")
        (folder / "more.txt").write_text("".join(f"{name}\n" for name in (*packages, ONE_MORE)))
        seen = argosy("more.txt", "--base", base, "-o", "seen.sif")
        changed = argosy("one.txt", "--base", str(inputs.delta), "-o", "changed.sif")
        rows = [*_our_rows(cold, warm), *_later_rows(again, seen, changed), *_floor_rows(cold, warm, folder, wheels)]
        rows += _conda_rows(argosy, base, folder, wheels)
        missing = why_no_lab()
        rows += [] if missing else _cotainr_rows(cold, warm, inputs, folder, wheels)
    remarks = [
        "cold is with empty caches of packages and byte code, warm with full ones; files in the page cache",
        FLOOR,
        f"no comparison with cotainr's steps: {missing}"
        if missing
        else "cotainr's conda is replaced by pip install of the same wheels, by an ordinary user in the lab",
        "all on a new ext4 with a journal" if os.geteuid() == 0 else "not on a new file system, which needs root",
    ]
    return Outcome(tuple(rows), tuple(f"building: {remark}" for remark in remarks))


def fetched_wheels(packages: tuple[str, ...], inputs: Inputs) -> Path:
    """Give a folder with the wheels of packages and all that they need, fetched once for the base's Python."""
    lock = open_image(inputs.delta).lock
    python = lock.python if lock else ""
    session = open_session(bench_cache(), quiet=False)
    place = bench_folder() / f"wheels-{len(packages)}-{python}"
    with fill_once(place, what=f"making {place.name}", waiting=session.waiting) as folder:
        if folder is not None:
            pip = (sys.executable, "-m", "pip", "download", "-qq", "--only-binary", ":all:")
            run(*pip, "--python-version", python, "--dest", str(folder), *packages, ONE_MORE, "pip")
            folder.chmod(0o755)
    return place


def _argosy(folder: Path, wheels: Path, *words: str) -> Built:
    """Build with a cache of this run's own, but for the static uv."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    tools = bench_folder() / "cache/tools"
    if tools.is_dir() and not (cache / "tools").exists():
        (cache / "tools").symlink_to(tools)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "ARGOSY_"))}
    env = {**kept, "ARGOSY_CACHE": str(cache), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    env |= {"PIP_FIND_LINKS": str(wheels)}
    argosy = str(Path(sys.executable).with_name("argosy"))
    said: list[str] = []
    usage = run_metered(lambda: said.append(run(argosy, "build", *words, "--json", cwd=folder, env=env)))
    return Built(usage, msgspec.json.decode(said[0], type=BuildReport))


def _our_rows(cold: Built, warm: Built) -> list[Row]:
    rows = [one("building.packages", "packages", cold.report.packages, "")]
    for name, built in (("cold", cold), ("warm", warm)):
        due = built.report.base_bytes + 2 * built.cost.new
        rows += [
            one(f"building.{name}.wall", f"{name}: wall", built.usage.wall, "s", against="building.cotainr.wall"),
            one(f"building.{name}.cpu", f"{name}: CPU", built.usage.cpu, "s", against="building.cotainr.cpu"),
            one(f"building.{name}.system", f"{name}: CPU in the kernel", built.usage.system, "s"),
            one(f"building.{name}.cores", f"{name}: CPU / (wall x cores)", _core_use(built.usage), ""),
            one(f"building.{name}.packages", f"{name}: the packages, packed", built.step("packages"), "s"),
            one(f"building.{name}.pack", f"{name}: join and write", built.step("pack"), "s"),
            one(f"building.{name}.disk", f"{name}: disk / (base + 2 x new)", built.cost.disk / due, "", budget=DISK),
            one(f"building.{name}.memory", f"{name}: peak memory", built.cost.memory / MEGA, "MB", budget=MEMORY),
        ]
    return rows


def _core_use(usage: Usage) -> float:
    """Give the share of this machine's processors that a command kept busy."""
    return usage.cpu / (usage.wall * _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _later_rows(again: Built, seen: Built, changed: Built) -> list[Row]:
    new = changed.cost.new / MEGA
    return [
        one("building.again", "the same lock again: wall", again.usage.wall, "s", budget=SAME_AGAIN),
        one("building.again.cpu", "the same lock again: CPU", again.usage.cpu, "s"),
        one("building.seen", "one package more, all wheels seen before: wall", seen.usage.wall, "s", budget=ALL_SEEN),
        one("building.seen.cpu", "one package more, all wheels seen before: CPU", seen.usage.cpu, "s"),
        one("building.changed.size", "image with one package more: its packages, unpacked", new, "MB"),
        one("building.changed", "one package more: wall", changed.usage.wall, "s", budget=ONE_CHANGED),
        one("building.changed.cpu", "one package more: CPU", changed.usage.cpu, "s"),
    ]


def _conda_rows(argosy: Callable[..., Built], base: str, folder: Path, wheels: Path) -> list[Row]:
    """Build the same packages as conda packages: cold, warm, and with one package more."""
    channel = conda_channel(wheels)
    if channel is None:
        return []
    (folder / "many.yml").write_text(environment_file(channel, without=(ONE_MORE,)))
    (folder / "more.yml").write_text(environment_file(channel))
    builds = {"cold": "many.yml", "warm": "many.yml", "more": "more.yml"}
    usages = {name: argosy(file, "--base", base, "-o", f"conda-{name}.sif").usage for name, file in builds.items()}
    return [
        row
        for name, usage in usages.items()
        for row in (
            one(f"building.conda.{name}", f"conda packages, {CONDA_BUILDS[name]}: wall", usage.wall, "s"),
            one(f"building.conda.{name}.cpu", f"conda packages, {CONDA_BUILDS[name]}: CPU", usage.cpu, "s"),
        )
    ]


def _floor_rows(cold: Built, warm: Built, folder: Path, wheels: Path) -> list[Row]:
    """Do only what nobody can leave out: unpack the wheels, compile their modules, and pack what came of the build."""
    image = open_image(folder / "cold.sif")
    session = open_session(folder / "floor")
    tree, lock = folder / "tree", image.lock
    names = {package.name.replace("-", "_").lower() for package in lock.packages} if lock else set()
    mine = [str(wheel) for wheel in wheels.glob("*.whl") if wheel.name.split("-")[0].lower().replace(".", "_") in names]
    layer = layer_source(image.image)
    if layer is None:
        raise RuntimeError("the image has no layer")
    unpack = run_command((sys.executable, "-c", UNPACK, str(folder / "unpacked"), *mine))
    unpack_source(session, layer, tree, "-no-xattrs", doing="unpacking a layer")
    pack = run_metered(partial(run_pack, session, tree, folder / "floor.sqfs", time=0))
    modules = folder / "modules.txt"
    modules.write_text("".join(f"{path}\n" for path in _compiled_modules(tree)))
    kind = ("--invalidation-mode", "unchecked-hash")
    words = (sys.executable, "-m", "compileall", "-q", "-f", *kind, "-j", str(_cores()), "-i", str(modules))
    compiling = run_command(("sh", "-c", '"$@" || :', "sh", *words))  # some modules are invalid Python
    floor = (unpack.cpu + compiling.cpu + pack.cpu) / _cores()
    return [
        one("building.floor.unpack", "zipfile alone, all wheels: CPU", unpack.cpu, "s"),
        one("building.floor.compile", "compileall alone: CPU", compiling.cpu, "s"),
        one("building.floor.pack", "mksquashfs alone: CPU", pack.cpu, "s"),
        one("building.floor", "the floor: their sum / cores", floor, "s"),
        one("building.cold.of_floor", "cold: wall / the floor", cold.usage.wall / floor, "x", budget=OF_THE_FLOOR),
        one("building.warm.of_floor", "warm: wall / the floor", warm.usage.wall / floor, "x", budget=OF_THE_FLOOR),
    ]


def _compiled_modules(tree: Path) -> Iterator[Path]:
    """Find the modules that a tree has byte code of."""
    for code in tree.rglob("__pycache__/*.pyc"):
        yield code.parent.with_name(f"{code.name.partition('.')[0]}.py")


def _cotainr_rows(cold: Built, warm: Built, inputs: Inputs, folder: Path, wheels: Path) -> list[Row]:
    work = folder / "cotainr"
    work.mkdir()
    work.chmod(0o777)
    root = f"{work}/root"
    lock = open_image(folder / "cold.sif").lock
    pins = [f"{package.name}=={package.version}" for package in lock.packages] if lock else []
    inside = ("apptainer", "--quiet", "exec", "--writable", "--no-home", "--bind", str(wheels), root)
    pip = ("python3", "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--no-index", "--find-links", str(wheels))
    steps = {
        "sandbox": ("apptainer", "--quiet", "build", "--fix-perms", "--sandbox", root, str(inputs.base)),
        "pip": (*inside, *pip, "--break-system-packages", "--target", "/opt/environment", *pins),
        "build": ("apptainer", "--quiet", "build", f"{work}/out.sif", root),
    }
    place = lab(folder)
    usages = {name: call_apart(place, run_command, words) for name, words in steps.items()}
    wall, cpu = (sum(getattr(usage, name) for usage in usages.values()) for name in ("wall", "cpu"))
    rows = [one(f"building.cotainr.{name}", f"cotainr's steps: {name}", u.wall, "s") for name, u in usages.items()]
    pip_wall = usages["pip"].wall
    return [
        *rows,
        one("building.cotainr.wall", "cotainr's steps: wall", wall, "s"),
        one("building.cotainr.cpu", "cotainr's steps: CPU", cpu, "s"),
        one("building.cold.faster", "cold: times faster", wall / cold.usage.wall, "x", budget=FASTER_THAN_COTAINR),
        one("building.warm.faster", "warm: times faster", wall / warm.usage.wall, "x", budget=WARM_FASTER_THAN_COTAINR),
        one("building.cold.less", "cold: times less CPU", cpu / cold.usage.cpu, "x", budget=LESS_CPU_THAN_COTAINR),
        one("building.warm.less", "warm: times less CPU", cpu / warm.usage.cpu, "x", budget=LESS_CPU_THAN_COTAINR),
        one("building.warm.pip", "warm: pip / packages", pip_wall / warm.step("packages"), "x", budget=FASTER_THAN_PIP),
    ]
