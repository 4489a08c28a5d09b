"""Apply a site's profile to a launch: runtime, options, variables, bind mounts and reasons; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from argosy.core.errors import SiteError
from argosy.core.model import Bind, Choice, ChoiceKey, ContainerRequest, GpuMode, Mark, Variable
from argosy.core.records import replace
from argosy.host.gpus import BY_DEVICES
from argosy.launch.context import LaunchTarget, facts_of
from argosy.launch.launchers.launcher import MPIEXEC
from argosy.runtimes.container_plan import ContainerPlan, lies_below
from argosy.runtimes.runtime import RUNTIMES, StepRuntime
from argosy.sites.conditions import Facts, evaluate_condition
from argosy.sites.job_settings import SiteSettings, choose_site_settings, evident_choice, full_address
from argosy.sites.profile import Site
from argosy.sites.profile_parts import Avoid
from argosy.slurm.sbatch import USER_DEFAULTS, JobOptions


def container_at_site(request: ContainerRequest, site: Site) -> ContainerRequest:
    """Complete a container request with the profile's runtime, GPU mode and signatures.

    Raises
    ------
    SiteError
        If Argosy does not support the profile's runtime.
    """
    name = request.runtime or site.runtime.name
    if name and not request.runtime and name not in RUNTIMES:
        raise SiteError(
            f"cannot plan jobs for {site.name}: its runtime is {name}",
            evidence=f"supported runtimes: {', '.join(RUNTIMES)}",
            hint="if the site also has one of these, select it with --runtime",
            key="runtime.name",
        )
    is_sites = name == site.runtime.name and bool(site.runtime.gpu)
    gpu = GpuMode(site.runtime.gpu) if request.gpu is GpuMode.AUTO and is_sites else request.gpu
    asked = () if name == "bare" else site.images.signed_by  # the machine's own software is not an image
    return replace(request, runtime=name, gpu=gpu, signed_by=request.signed_by or asked)


def plan_site_settings(
    target: LaunchTarget, *, launcher: str, runtime: str, versions: Mapping[str, str]
) -> SiteSettings:
    """Return the settings, paths and options that the profile adds to a job."""
    facts = facts_of(target, launcher=launcher, runtime=runtime, versions=versions)
    return choose_site_settings(target.site, facts, target.shape.gpus_per_node * target.site.node.devices_per_gpu)


def refuse_missing_options(options: JobOptions, site: Site, facts: Facts) -> None:
    """Refuse a job that lacks an option which the site requires, and which the profile does not add to such a job."""
    added = {
        option.word.partition("=")[0]
        for option in site.options
        if option.to == "sbatch" and evaluate_condition(option.condition, facts)
    }
    asked = (name for name in site.slurm.required if f"--{name}" not in added)
    missing = [name for name in asked if not getattr(options, name, "")]
    if not missing:
        return
    forms = {"account": site.slurm.account_form}
    variables = [USER_DEFAULTS[name] for name in missing if name in USER_DEFAULTS]
    *others, last = (f"--{name}" for name in missing)
    unset = f"; not set either: {', '.join(variables)}" if variables else ""
    raise SiteError(
        f"{site.name} rejects jobs without {', '.join(others)}{' and ' * bool(others)}{last}",
        evidence=f"its profile lists {'it' if len(missing) == 1 else 'them'} as required{unset}",
        hint="add " + " ".join(f"--{name} {forms.get(name) or name.upper()}" for name in missing),
        key="slurm.required",
    )


def advised_against(site: Site, avoided: Iterable[Avoid], asked: Iterable[str]) -> Iterator[Choice]:
    """Yield a choice for each option of sbatch that the user asked for, and the site advises against."""
    options = [option.partition("=")[::2] for option in asked]
    for avoid in avoided:
        name, _, value = avoid.word.partition("=")
        if any(given == name and value in {"", text} for given, text in options):
            instead = f"; instead: {avoid.instead}" if avoid.instead else ""
            why = f"{site.name} advises against it: {avoid.why}{instead}"
            yield Choice(name, value or "yes", why, f"site {site.name}", mark=Mark.DOUBTFUL)


SEVERAL_VALUES = frozenset({"--constraint", "--gres", "--licenses", "--exclude", "--network"})
"""Options of sbatch whose value may join those of two; a job has one QOS, for example."""


def replaced_by_user(site: Site, added: Iterable[str], asked: Iterable[str]) -> Iterator[Choice]:
    """Yield a choice for each option of the site that one of the user's replaces, without containing its value."""
    given = dict(option.partition("=")[::2] for option in asked)
    for word in added:
        name, _, value = word.partition("=")
        text = given.get(name, value)
        if value not in text:
            both = "; give both if the job needs both" if name in SEVERAL_VALUES else ""
            why = f"it replaces {word} of the profile{both}"
            yield Choice(name, text, why, f"site {site.name}", mark=Mark.DOUBTFUL)


def with_site_binds(container: ContainerPlan, binds: tuple[Bind, ...]) -> ContainerPlan:
    """Return the container with the site's bind mounts; the user's bind mounts take precedence."""
    taken = {bind.target for bind in container.entry.binds}
    new = tuple(bind for bind in binds if bind.target not in taken)
    return replace(container, entry=replace(container.entry, binds=(*container.entry.binds, *new)))


PLAIN_PATH = re.compile(r"[\w@%+=./-]+")
"""Paths that a job script can pass in a list."""


def with_home_of_nodes(container: ContainerPlan, settings: SiteSettings) -> tuple[ContainerPlan, SiteSettings]:
    """Return container and settings that bind the home only on nodes which have it; some sites do not mount it there.

    The home stays a bind mount of its own if another one lies below it: some runtimes would mount it later.
    """
    entry, traits = container.entry, container.runtime.traits
    home = Bind(entry.person.home, entry.person.home)
    others = tuple(bind for bind in entry.binds if bind != home)
    if len(others) == len(entry.binds):
        return container, settings
    if traits.skips_binds:
        binds = tuple(replace(bind, optional=bind == home or bind.optional) for bind in entry.binds)
        return replace(container, entry=replace(entry, binds=binds)), settings
    is_above = any(lies_below(bind.target, home.source) for bind in others)
    if is_above or not traits.node_binds or not PLAIN_PATH.fullmatch(home.source):
        return container, settings
    settings = replace(settings, node_binds=(home.source, *settings.node_binds))
    return replace(container, entry=replace(entry, binds=others)), settings


def explain_container(
    choices: tuple[Choice, ...], request: ContainerRequest, site: Site, *, has_gpus: bool
) -> tuple[Choice, ...]:
    """Replace the reasons for runtime, GPU mode and signature by those of the profile, unless the user chose.

    Parameters
    ----------
    has_gpus
        False for a job without GPUs.
    """
    facts = site.runtime
    version = f"; the site documents {facts.version}" if facts.version else ""
    own: dict[str, Choice] = {}
    if facts.name and not request.runtime:
        own[ChoiceKey.RUNTIME] = evident_choice(
            site, facts, ChoiceKey.RUNTIME, facts.name, why=f"the site's runtime{version}"
        )
    if facts.gpu and request.gpu is GpuMode.AUTO and request.runtime in {"", facts.name}:
        by_devices = facts.gpu == GpuMode.NONE.value
        value = BY_DEVICES if by_devices else facts.gpu
        why = "the GPUs need only their device files" if by_devices else "the site's way to pass GPUs to containers"
        own[ChoiceKey.GPU] = evident_choice(site, facts, ChoiceKey.GPU, value, field="gpu", why=why)
    if not has_gpus and request.gpu is GpuMode.AUTO:
        own[ChoiceKey.GPU] = Choice(ChoiceKey.GPU, GpuMode.NONE.value, "the job has no GPUs", "default")
    own |= _layer_as_proved(choices, site)
    asked = next((choice for choice in choices if choice.key == ChoiceKey.SIGNED_BY), None)
    if asked and not request.signed_by:
        own[ChoiceKey.SIGNED_BY] = evident_choice(
            site,
            site.images,
            ChoiceKey.SIGNED_BY,
            asked.value,
            field="signed_by",
            why=f"the site requires it; {asked.why}",
        )
    return tuple(own.get(choice.key, choice) for choice in choices)


def validated_overlay_mode(site: Site, runtime: str) -> str:
    """Return whether a run at the site showed that an image's overlay partition is mounted there.

    Returns ``yes``, or ``no`` if a bind mount of the layer worked instead, or an empty text without such a run.
    """
    shown = site.validated
    overlay = shown.facts.get("attach.overlay", "") if runtime in shown.versions else ""
    return overlay if overlay == "yes" or (overlay == "no" and shown.facts.get("attach.bind") == "yes") else ""


def _layer_as_proved(choices: tuple[Choice, ...], site: Site) -> dict[str, Choice]:
    """Return the reason for how the layer is attached, if a run at the site showed it."""
    chosen = {choice.key: choice for choice in choices}
    runtime, layer = chosen.get(ChoiceKey.RUNTIME), chosen.get(ChoiceKey.LAYER)
    shown = validated_overlay_mode(site, runtime.value) if runtime else ""
    if not layer or (shown, layer.value) not in {("yes", "overlay"), ("no", "bind")}:
        return {}
    how = "its overlay partition is mounted there" if shown == "yes" else "overlay partitions are skipped there"
    by = ", ".join((f"job {site.validated.job}", *(f"{name} {text}" for name, text in site.validated.versions.items())))
    told = Choice(ChoiceKey.LAYER, layer.value, how, f"site {site.name}", evidence=f"argosy sites validate: {by}")
    return {ChoiceKey.LAYER: replace(told, checked=site.validated.date, proof="validated")}


DEFAULT_MPI = "pmix"
"""The value of ``srun --mpi`` at a site whose profile has none."""


def choose_mpi(launcher: str, asked: str, site: Site) -> str:
    """Return what connects the ranks of the launcher `mpi`: the host's mpiexec, else the value of ``srun --mpi``.

    The value is the user's, else the site's, else ``pmix``. The text is empty for other launchers.
    """
    if launcher != "mpi":
        return ""
    return MPIEXEC if site.launcher.mpiexec else asked or site.launcher.mpi or DEFAULT_MPI


def refuse_launch(container: ContainerPlan, settings: SiteSettings, site: Site, mpi: str) -> None:
    """Refuse a launch that the runtime does not support.

    Parameters
    ----------
    mpi
        As `choose_mpi` returns it.
    """
    runtime, hint = container.runtime, "select another runtime with --runtime"
    if mpi and not runtime.traits.host_mpi:
        raise SiteError(
            f"{runtime.name} cannot start ranks of the host's MPI",
            evidence="its containers are not child processes of srun, which passes PMI by open files and folders",
            hint="select another runtime with --runtime; a program without MPI can use --launcher torchrun",
        )
    if mpi == "pmi2" and not runtime.traits.pmi2:
        raise SiteError(
            f"{runtime.name} cannot start ranks by PMI2",
            evidence="it closes the file that srun uses for PMI2 (PMI_FD)",
            hint="use --mpi pmix with an MPI that supports it, or another runtime",
            key="launcher.mpi",
        )
    if mpi == MPIEXEC and isinstance(runtime, StepRuntime):
        raise SiteError(
            f"{site.name} starts MPI with mpiexec, but only srun can start containers of {runtime.name}",
            evidence=f"mpiexec = {site.launcher.mpiexec} in its profile",
            hint=hint,
            key="launcher.mpiexec",
        )
    if settings.node_binds and not runtime.traits.node_binds:
        raise SiteError(
            f"{runtime.name} cannot mount paths that only some nodes have",
            evidence=f"the profile {site.name} binds {settings.node_binds[0]} on nodes that have it",
            hint=hint,
        )


def with_variables(container: ContainerPlan, variables: tuple[Variable, ...]) -> ContainerPlan:
    """Return the container with these variables instead of its own."""
    return replace(container, entry=replace(container.entry, variables=variables))


def with_runtime_options(container: ContainerPlan, settings: SiteSettings) -> ContainerPlan:
    """Return the container with the site's options and annotations for its runtime."""
    entry = replace(container.entry, options=settings.runtime, annotations=settings.annotations)
    return replace(container, entry=entry)


def launcher_at_site(choice: Choice, site: Site) -> Choice:
    """Return the launcher: the user's, else the site's instead of torchrun."""
    policy = site.launcher
    if choice.value == "torchrun" and policy.torchrun:
        why = (
            f"{choice.why}; not {policy.torchrun}: nodes get their ranks from the script, and do not compare host names"
        )
        return replace(choice, why=why, evidence=full_address(site, policy.source), checked=site.checked)
    if choice.value in policy.avoid and choice.source == "option":
        why = f"{choice.why}, though {site.name} advises against it" + (f": {policy.why}" if policy.why else "")
        return replace(choice, why=why, evidence=full_address(site, policy.source), checked=site.checked)
    if choice.source == "option" or choice.value != "torchrun" or policy.default in {"", choice.value}:
        return choice
    return evident_choice(site, policy, ChoiceKey.LAUNCHER, policy.default)


def parse_torch_version(text: str) -> dict[str, str]:
    """Return the versions in the version of a torch wheel: ``2.6.0+rocm6.2.4`` or ``2.6.0+cu124``."""
    public, _, local = text.partition("+")
    out = {"torch": public} if public else {}
    if local.startswith("rocm"):
        out["rocm"] = local.removeprefix("rocm")
    elif local.startswith("cu") and local[2:].isdigit():
        out["cuda"] = f"{local[2:-1]}.{local[-1]}"
    return out
