"""Run programs in images: run, shell, launch, explain and bench."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from argosy.api.session import use_session
from argosy.bench import collectives, nodes, settings, stored
from argosy.bench.result import BenchResult
from argosy.bench.startup import StartupReport, measure_startup
from argosy.bench.startup_cases import StartupRequest
from argosy.bench.statistics import Comparison
from argosy.builder.one_off import add_packages
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.ssh import parse_remote
from argosy.diagnostics.verify import earlier
from argosy.diagnostics.verify.verify import find_bad_nodes_of
from argosy.jobs.history import kept_plan
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch import explain, interactive, resolve, submit, submit_ssh
from argosy.launch.import_script import importer
from argosy.launch.import_script.model import ImportedScript
from argosy.launch.model import LaunchRequest
from argosy.launch.request import read_request
from argosy.recipes.launch_options import CONTAINER_ROWS, ContainerOptions, LaunchOptions
from argosy.recipes.option_row import plain_values
from argosy.recipes.user_config import fill_options
from argosy.runtimes import run as runner
from argosy.runtimes import sessions
from argosy.runtimes.container_plan import parse_container
from argosy.sites.load import load_site


def run(
    image: str | Path, command: Sequence[str], *, dev_dir: str = "", fakeroot: bool = False, save_recipe: str = "",
    packages: Sequence[str] = (), session: Session | None = None, **options: Unpack[ContainerOptions],
) -> int:  # fmt: skip
    """Run a command in an image on this machine, as ``argosy run`` does, and return its exit code.

    Parameters
    ----------
    image
        A file, a name of the catalog, or a reference such as ``docker://debian:bookworm``.
    dev_dir
        Folder that takes the changes if the image is to be writable.
    fakeroot
        Whether an ordinary user is root in the writable image, so that apt-get and dnf can install packages.
    save_recipe
        Folder for a project with what pip and apt have installed in the writable image.
    packages
        Python packages to add for this start, as ``--with`` does.
    """
    here = use_session(session)
    request = _run_request(image, command, dev_dir, options, here)
    request = replace(request, fakeroot=fakeroot, save_recipe=save_recipe)
    extended = add_packages(request.image, tuple(packages), here, runtime=request.container.runtime)
    return runner.run(replace(request, image=extended), here)


def shell(
    image: str | Path, *, dev_dir: str = "", fakeroot: bool = False, save_recipe: str = "",
    packages: Sequence[str] = (), session: Session | None = None, **options: Unpack[ContainerOptions],
) -> int:  # fmt: skip
    """Open a shell in an image on this machine, as ``argosy shell`` does, and return its exit code."""
    return run(
        image, (), dev_dir=dev_dir, fakeroot=fakeroot, save_recipe=save_recipe, packages=packages, session=session,
        **options,
    )  # fmt: skip


def start_session(
    name: str, image: str | Path, *, session: Session | None = None, **options: Unpack[ContainerOptions]
) -> sessions.DetachedSession:
    """Start a container that stays, as ``argosy shell --detach NAME`` does; `attach` runs commands in it."""
    here = use_session(session)
    return sessions.start_session(name, _run_request(image, (), "", options, here), here)


def list_sessions(*, session: Session | None = None) -> list[sessions.DetachedSession]:
    """List your detached sessions, as ``argosy sessions ls`` does."""
    return sessions.list_sessions(use_session(session))


def stop_session(name: str, *, session: Session | None = None) -> sessions.DetachedSession:
    """End a detached session, as ``argosy sessions stop`` does."""
    return sessions.stop_session(name, use_session(session))


def _run_request(
    image: str | Path, command: Sequence[str], dev_dir: str, options: ContainerOptions, session: Session
) -> runner.RunRequest:
    environment = session.host.environment
    given = fill_options(plain_values(options, ContainerOptions), CONTAINER_ROWS, environment)
    container = parse_container(given, environment)
    return runner.RunRequest(str(image), tuple(command), container, bool(dev_dir), dev_dir)


def make_request(
    image: str | Path, command: Sequence[str] = (), *, session: Session | None = None, **options: Unpack[LaunchOptions]
) -> LaunchRequest:
    """Return the request of an ``argosy launch``, completed by the ``argosy.toml`` of the current folder.

    Parameters
    ----------
    image
        An image, or the name of a job of ``argosy.toml``; a job needs no command.
    options
        The options of `argosy launch` (see `LaunchOptions`).
    """
    return _request(image, command, use_session(session), dict(options))


def _request(image: str | Path, command: Sequence[str], session: Session, options: dict[str, Any]) -> LaunchRequest:
    given = {name: value for name, value in options.items() if value} | {"image": str(image)}
    if command:  # a job of the project file has its own
        given["command"] = tuple(command)
    request = read_request(given, session.host)
    if "@" not in request.options.exclude:
        return request
    return nodes.exclude_bad_nodes(request, lambda job: find_bad_nodes_of(session, job))


def launch(
    image: str | Path, command: Sequence[str] = (), *, in_allocation: bool = False, smoke: bool = False, ssh: str = "",
    packages: Sequence[str] = (), session: Session | None = None, **options: Unpack[LaunchOptions],
) -> submit.Launched:  # fmt: skip
    """Launch a program, as ``argosy launch`` does: submit a job, or run it on this machine (site ``local``).

    Parameters
    ----------
    image
        An image, or the name of a job of ``argosy.toml``; a job needs no command.
    in_allocation
        Whether it starts in the current allocation, not as a new job.
    smoke
        Whether it is a short test: at most 2 nodes for 3 minutes.
    ssh
        ``HOST[:DIR]`` where the job is submitted; empty: this machine.
    packages
        Python packages to add for this launch, as ``--with`` does; not with `ssh`.

    Returns
    -------
    Launched
        The job's id and record; without a job, the exit code of the program.
    """
    here = use_session(session)
    request = _request(image, command, here, dict(options))
    extended = add_packages(request.image, tuple(packages), here, runtime=request.container.runtime)
    request = replace(request, image=extended, in_allocation=in_allocation, smoke=smoke)
    return launch_request(request, ssh=ssh, session=here)


def launch_request(request: LaunchRequest, *, ssh: str = "", session: Session | None = None) -> submit.Launched:
    """Launch a request that `make_request` returned, as ``argosy launch`` does."""
    here = use_session(session)
    return submit_ssh.launch_by_ssh(request, here, parse_remote(ssh)) if ssh else submit.launch(request, here)


def plan_launch(
    image: str | Path, command: Sequence[str] = (), *, smoke: bool = False, session: Session | None = None,
    **options: Unpack[LaunchOptions],
) -> LaunchPlan:  # fmt: skip
    """Return the plan of a launch, as ``argosy launch --dry-run`` does; ``plan.script`` is the job script."""
    here = use_session(session)
    return resolve.prepare_launch(replace(_request(image, command, here, dict(options)), smoke=smoke), here, dry=True)


def launch_interactive(
    image: str | Path, *, session: Session | None = None, **options: Unpack[LaunchOptions]
) -> submit.Launched:
    """Allocate nodes and open a shell in the image on the first one, as ``argosy launch --interactive`` does."""
    here = use_session(session)
    return interactive.launch_interactive(_request(image, (), here, dict(options)), here)


def launch_after_smoke(
    image: str | Path, command: Sequence[str] = (), *, session: Session | None = None, **options: Unpack[LaunchOptions]
) -> tuple[submit.Launched, submit.Launched]:
    """Submit a short test, and the job itself if the test passes, as ``argosy launch --smoke-first`` does."""
    here = use_session(session)
    return submit_ssh.launch_after_smoke(_request(image, command, here, dict(options)), here)


def explain_launch(
    image: str | Path, command: Sequence[str] = (), *, session: Session | None = None, **options: Unpack[LaunchOptions]
) -> tuple[explain.Explained, ...]:
    """Return every value of a launch with its reason, source and date, as ``argosy explain`` does."""
    return explain.explain_plan(plan_launch(image, command, session=session, **options))


def explain_job(job: str, *, session: Session | None = None) -> tuple[explain.Explained, ...]:
    """Return every value of a submitted job with its reason, source and date, as ``argosy explain JOB`` does."""
    return explain.explain_plan(kept_plan(use_session(session), job))


def bench_collectives(
    image: str | Path, *, operation: str = collectives.OPERATIONS[0], max_size: str = "",
    session: Session | None = None, **options: Unpack[LaunchOptions],
) -> submit.Launched:  # fmt: skip
    """Measure the network between ranks, as ``argosy bench collectives`` does.

    Parameters
    ----------
    operation
        Collective operation, for example ``all_reduce``.
    max_size
        Largest message of a rank, for example ``4G``.
    """
    here = use_session(session)
    request = _request(image, collectives.benchmark_command(operation, max_size), here, dict(options))
    return submit.launch(collectives.as_benchmark(request, operation), here)


def compare_bench(names: Sequence[str], *, session: Session | None = None) -> tuple[BenchResult, ...]:
    """Return stored results for a comparison, as ``argosy bench compare`` does.

    Parameters
    ----------
    names
        Job numbers, files, or ``earlier``.
    """
    return stored.read_results(use_session(session), names)


def bench_nodes(
    image: str | Path, *, session: Session | None = None, **options: Unpack[LaunchOptions]
) -> submit.Launched:
    """Test each node alone and find those to avoid, as ``argosy bench nodes`` does."""
    here = use_session(session)
    return submit.launch(nodes.as_node_test(_request(image, nodes.node_test_command(), here, dict(options))), here)


def bench_settings(
    image: str | Path, command: Sequence[str], *, variants: Sequence[str], rounds: int = 6, metric: str = "",
    session: Session | None = None, **options: Unpack[LaunchOptions],
) -> submit.Launched:  # fmt: skip
    """Compare runs of a program with different variables, as ``argosy bench settings`` does.

    Parameters
    ----------
    variants
        ``NAME=VALUE …`` of each variant.
    rounds
        Number of runs of each variant.
    metric
        Text before the number to compare in the output; empty: the seconds of a run.
    """
    here = use_session(session)
    parsed = settings.parse_variants(variants, here.host.environment)
    request = _request(image, command, here, dict(options))
    return settings.launch_variants(request, parsed, here, rounds=rounds, phrase=metric)


def bench_settings_report(job: str, *, session: Session | None = None) -> tuple[tuple[Comparison, ...], str]:
    """Return the comparison of a job of `bench_settings` and its subject, as ``argosy bench settings --of`` does."""
    return settings.report_of(job, use_session(session))


def bench_startup(
    prefix: str | Path, *, code: str = "pass", only: Sequence[str] = (),
    at_once: Sequence[tuple[int, int]] = ((1, 30), (8, 7), (64, 3)), session: Session | None = None,
) -> StartupReport:  # fmt: skip
    """Measure how long the Python of a wrapped prefix takes to start, as ``argosy bench startup`` does.

    Parameters
    ----------
    at_once
        Starts at the same moment, and how often each is repeated.
    """
    request = StartupRequest(Path(prefix).absolute(), code, tuple(only), tuple(at_once))
    return measure_startup(request, use_session(session))


def bench_history(*, site: str = "", session: Session | None = None) -> tuple[earlier.EarlierRun, ...]:
    """List the bandwidths that your last jobs measured, as ``argosy bench history`` does."""
    return earlier.list_earlier(use_session(session), site)


def import_script(
    script: str | Path, *, site: str = "", name: str = "", session: Session | None = None
) -> ImportedScript:
    """Translate a hand-written job script into jobs of ``argosy.toml``, as ``argosy import`` does; no file is written.

    Parameters
    ----------
    site
        Site of the job; variables that its profile sets are left out.
    name
        Name of the first job; empty: the script's job name, or its file name.

    Raises
    ------
    SiteError
        When there is no such site.
    UsageError
        When the file cannot be read, is not a shell script, or is a heterogeneous job.
    """
    here = use_session(session)
    profile = load_site(site, here.host) if site else None
    return importer.import_script(str(script), importer.read_script_text(Path(script)), name=name, site=profile)
