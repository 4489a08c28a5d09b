"""The Python interface: a typed function for each command of the command line.

    from argosy import api

    report = api.build("environment.yml", base="debian:bookworm", output="my.sif")
    plan = api.plan_launch("my.sif", ["python", "train.py"], ranks=2)
    print(plan.script)
    launched = api.launch("my.sif", ["python", "train.py"], ranks=2, site="my-site", time="1h")
    end = api.follow_job(launched.job)
    evidence, verdict = api.verify_run(launched.job)

Every function takes its options as keyword arguments with the names of the command line, and an optional ``session``:
`open_session` opens one with your own reporter or runner. Options that are not given come from the same variables and
files as on the command line (see `list_settings`). Every function raises `argosy.core.errors.ArgosyError`, which holds
the cause, the evidence and a hint.
"""

from __future__ import annotations

from types import MappingProxyType

from argosy.api.builds import build, bundle, check_lock, lock, preview_build
from argosy.api.diagnostics import check_image, examine_machine, explain_failure, verify_run
from argosy.api.images import (
    clean_cache,
    describe_image,
    diff_images,
    export_image,
    freeze_image,
    list_cache,
    list_images,
    pull_image,
    push_image,
    remove_image,
    render_sbom,
    send_image,
    slim_image,
    tag_image,
    verify_image,
)
from argosy.api.jobs import (
    attach,
    cancel_jobs,
    diff_jobs,
    find_job,
    follow_job,
    list_accounts,
    list_jobs,
    list_past_jobs,
    list_queues,
    read_logs,
)
from argosy.api.launches import (
    bench_collectives,
    bench_history,
    bench_nodes,
    bench_settings,
    bench_settings_report,
    bench_startup,
    explain_job,
    explain_launch,
    import_script,
    launch,
    launch_after_smoke,
    launch_interactive,
    launch_request,
    make_request,
    plan_launch,
    run,
    shell,
)
from argosy.api.session import open_session
from argosy.api.settings import list_settings, set_setting, unset_setting
from argosy.api.sites import (
    detect_site,
    diff_sites,
    discover_site,
    draw_site,
    lint_profile,
    lint_script,
    list_sites,
    merge_site,
    show_site,
    site_schema,
    validate_site,
)
from argosy.api.wraps import (
    add_kernel,
    check_wrap,
    list_wrap_versions,
    prune_wrap,
    rollback_wrap,
    update_wrap,
    wrap,
)
from argosy.core.errors import ArgosyError
from argosy.core.session import Session

FUNCTIONS = MappingProxyType(
    {
        "build": ("build", "preview_build"),
        "lock": ("lock", "check_lock"),
        "bundle": ("bundle",),
        "wrap new": ("wrap",),
        "wrap update": ("update_wrap",),
        "wrap rollback": ("rollback_wrap",),
        "wrap history": ("list_wrap_versions",),
        "wrap prune": ("prune_wrap",),
        "wrap check": ("check_wrap",),
        "wrap kernel": ("add_kernel",),
        "run": ("run",),
        "shell": ("shell",),
        "launch": (
            "import_script",
            "launch",
            "plan_launch",
            "launch_after_smoke",
            "launch_interactive",
            "make_request",
            "launch_request",
        ),
        "import": ("import_script",),
        "explain": ("explain_launch", "explain_job"),
        "jobs": ("list_jobs", "list_past_jobs"),
        "jobs show": ("find_job",),
        "jobs diff": ("diff_jobs",),
        "logs": ("read_logs", "follow_job"),
        "cancel": ("cancel_jobs",),
        "attach": ("attach",),
        "queues": ("list_queues", "list_accounts"),
        "doctor": ("examine_machine",),
        "check": ("check_image",),
        "verify": ("verify_run",),
        "why": ("explain_failure",),
        "bench collectives": ("bench_collectives",),
        "bench nodes": ("bench_nodes",),
        "bench settings": ("bench_settings", "bench_settings_report"),
        "bench startup": ("bench_startup",),
        "bench history": ("bench_history",),
        "images ls": ("list_images",),
        "images pull": ("pull_image",),
        "images push": ("push_image",),
        "images send": ("send_image",),
        "images tag": ("tag_image",),
        "images rm": ("remove_image",),
        "images verify": ("verify_image",),
        "images info": ("describe_image",),
        "images freeze": ("freeze_image",),
        "images sbom": ("render_sbom",),
        "images slim": ("slim_image",),
        "images diff": ("diff_images",),
        "images export": ("export_image",),
        "cache info": ("list_cache",),
        "cache gc": ("clean_cache",),
        "sites ls": ("list_sites",),
        "sites show": ("show_site",),
        "sites new": ("discover_site",),
        "sites picture": ("draw_site",),
        "sites lint": ("lint_profile", "lint_script"),
        "sites diff": ("diff_sites",),
        "sites detect": ("detect_site",),
        "sites schema": ("site_schema",),
        "sites merge": ("merge_site",),
        "sites validate": ("validate_site",),
        "config": ("list_settings",),
        "config get": ("list_settings",),
        "config set": ("set_setting",),
        "config unset": ("unset_setting",),
    }
)
"""Command -> the functions that do the same."""

ONLY_COMMANDS = frozenset({"compat ls", "compat install", "compat run", "completion"})
"""Commands without a function: they are about the shell."""

__all__ = [
    "FUNCTIONS",
    "ONLY_COMMANDS",
    "ArgosyError",
    "Session",
    "add_kernel",
    "attach",
    "bench_collectives",
    "bench_history",
    "bench_nodes",
    "bench_settings",
    "bench_settings_report",
    "bench_startup",
    "build",
    "bundle",
    "cancel_jobs",
    "check_image",
    "check_lock",
    "check_wrap",
    "clean_cache",
    "describe_image",
    "detect_site",
    "diff_images",
    "diff_jobs",
    "diff_sites",
    "discover_site",
    "draw_site",
    "examine_machine",
    "explain_failure",
    "explain_job",
    "explain_launch",
    "export_image",
    "find_job",
    "follow_job",
    "freeze_image",
    "import_script",
    "launch",
    "launch_after_smoke",
    "launch_interactive",
    "launch_request",
    "lint_profile",
    "lint_script",
    "list_accounts",
    "list_cache",
    "list_images",
    "list_jobs",
    "list_past_jobs",
    "list_queues",
    "list_settings",
    "list_sites",
    "list_wrap_versions",
    "lock",
    "make_request",
    "merge_site",
    "open_session",
    "plan_launch",
    "preview_build",
    "prune_wrap",
    "pull_image",
    "push_image",
    "read_logs",
    "remove_image",
    "render_sbom",
    "rollback_wrap",
    "run",
    "send_image",
    "set_setting",
    "shell",
    "show_site",
    "site_schema",
    "slim_image",
    "tag_image",
    "unset_setting",
    "update_wrap",
    "validate_site",
    "verify_image",
    "verify_run",
    "wrap",
]
