"""The Python interface: a typed function for each command, which the first line of its docstring names.

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

from argosy.api.builds import build, bundle, check_lock, lock, new_project, preview_build
from argosy.api.diagnostics import check_image, examine_machine, explain_failure, report_job, verify_run
from argosy.api.images import (
    clean_cache,
    clean_images,
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
    scan_image,
    send_image,
    slim_image,
    tag_image,
    verify_image,
)
from argosy.api.jobs import (
    attach,
    cancel_jobs,
    collect_stacks,
    diff_jobs,
    find_job,
    follow_job,
    list_accounts,
    list_jobs,
    list_past_jobs,
    list_queues,
    measure_job,
    read_logs,
    watch_job,
)
from argosy.api.launches import (
    bench_collectives,
    bench_history,
    bench_nodes,
    bench_settings,
    bench_settings_report,
    bench_startup,
    compare_bench,
    explain_job,
    explain_launch,
    import_script,
    launch,
    launch_after_smoke,
    launch_interactive,
    launch_request,
    list_sessions,
    make_request,
    plan_launch,
    run,
    shell,
    start_session,
    stop_session,
)
from argosy.api.session import open_session
from argosy.api.settings import list_settings, project_schema, set_setting, unset_setting
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

__all__ = [
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
    "clean_images",
    "collect_stacks",
    "compare_bench",
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
    "list_sessions",
    "list_settings",
    "list_sites",
    "list_wrap_versions",
    "lock",
    "make_request",
    "measure_job",
    "merge_site",
    "new_project",
    "open_session",
    "plan_launch",
    "preview_build",
    "project_schema",
    "prune_wrap",
    "pull_image",
    "push_image",
    "read_logs",
    "remove_image",
    "render_sbom",
    "report_job",
    "rollback_wrap",
    "run",
    "scan_image",
    "send_image",
    "set_setting",
    "shell",
    "show_site",
    "site_schema",
    "slim_image",
    "start_session",
    "stop_session",
    "tag_image",
    "unset_setting",
    "update_wrap",
    "validate_site",
    "verify_image",
    "verify_run",
    "watch_job",
    "wrap",
]
