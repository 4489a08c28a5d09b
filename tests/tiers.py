"""The tests that `make test` leaves to `make soak`, each with the test that stands in for it.

`make test` keeps one real test of each capability.  The soak runs the other variants, the loops and the slow pages.
"""

from __future__ import annotations

import re

SOAK = (
    # The pages of the README, the tutorial and the examples stay.
    r"docs/test_docs.py::.*\[docs/(how-to|explanation|reference)/",
    # The contract runs under Apptainer and under bwrap as a user; root's bwrap differs in the mounts only.
    r"contract/.*::.*\[.*bwrap, root",
    # One real job of each launcher stays, and one of each way to end.
    r"slurm/test_slurm_faults.py::test_a_job_resumes_from_its_checkpoint_if",
    r"slurm/test_slurm_faults.py::.*\[KILL-137\]",
    r"slurm/test_slurm_ends.py::test_warnings.*\[(torchrun|none|srun-rank)\]",
    r"slurm/test_slurm_ends.py::.*\[(torchrun|none|srun-rank)-2-KILL-137\]",
    r"slurm/test_slurm_lightning.py",
    r"slurm/test_slurm_time.py::test_a_lost_node_takes_the_same_path",
    r"slurm/test_slurm_places.py::test_(ranks_of_a_full_node|an_image_without_a_lock)",
    r"slurm/test_slurm_by_ssh.py::test_(signatures_are|a_base_with_other_bytes|a_smoke_run|impossible_options)",
    r"slurm/test_slurm_ranks.py::test_(pi_is_pi|ranks_follow)",
    r"slurm/test_slurm_outputs.py::test_debug_reaches",
    r"slurm/test_slurm_settings.py::test_(a_failing_setting|settings_that_cannot_be)",
    r"slurm/test_slurm_build.py::test_a_launch_waits",
    # One build of each kind of source and of each backend stays; so does one way to the same bytes.
    r"real/test_builds.py::.*\[(tar|tar\.gz|flat)\]",
    r"real/test_build_backends.py::test_root_builds.*\[(userns|proot)\]",
    r"real/test_build_backends.py::test_a_user_of_a_cluster.*\[userns\]",
    r"real/test_build_backends.py::.*\[(0007|KILL)\]",
    r"real/test_compat.py::.*\[0022\]",
    r"real/test_forged.py::.*\[(0077|layer)\]",
    r"real/test_projects.py::.*\[(userns, flat|proot)\]",
    r"real/test_same_bytes.py::.*\[(umask 0007|one processor|a cache with its wheels|another name)",
    r"real/test_other_machines.py::test_conda",
    r"real/test_bad_input.py::test_a_full_disk.*\[(work|cache)\]",
    # Each example trains on two ranks, and one resumes; its own errors are not Argosy's.
    r"examples/test_examples.py::test_(a_snapshot_that|an_invalid|a_damaged|a_single_process|the_trainer_refuses|a_sum_that)",
    r"examples/test_examples.py::test_(steps_divide|the_shares).*\[(0-64|1)\]",
    r"examples/test_examples.py::test_the_(device_found|trainer_goes_on)",
    # One build over a vendor's torch, one prefix with conda, one MPI and one signature stay.
    r"real/test_vendor.py::test_a_(step_of|script_after|package_from)",
    r"real/test_compat.py::test_conda_containerize.*\[ {2}- python\\n\]",
    r"real/test_compat.py::test_conda_containerize.*\[ {2}- pip:",
    r"real/test_compat.py::test_a_prefix_that_shows_the_host",
    r"real/test_default_base.py::test_without_mmdebstrap_the_base_of_the",
    r"real/test_tykky.py::test_a_venv_on_top",
    r"slurm/test_slurm_mpi.py::.*\[mpich-mpiexec\]",
    r"lab/test_lab_signing.py::test_a_site_can_require",
    r"lab/test_lab_rootfs.py::test_the_package_index",
    # make gpu-kit is for another machine; the unit tests cover its parts.
    r"real/test_gpu_kit.py",
    # Faults of a network, and kills at any moment: one of each stays with test_registry.py and test_kills.py.
    r"real/test_conda.py::test_(after_a_lost|a_damaged_file|a_(refusing_)?channel_(that|is)|an_unreachable|a_login|a_killed_worker|same_environment)",
    r"real/test_conda.py::test_(the_history|a_package_(named|can|in_a)|a_second_build|builds_by_pip|pip_packages_that)",
    r"real/test_conda.py::test_(a_lower_channel|byte_code_of|a_link_script)",
    r"real/test_wrap.py::test_(updates_killed|a_new_prefix_killed|a_thousand|an_archive_may)",
    r"real/test_wrap.py::test_half_a_megabyte.*\[50000-5\]",
    r"real/test_kills.py::.*\[[123]\]",
)

_SOAK = re.compile("|".join(f"(?:tests/{'lab/' * part.startswith('slurm')}{part})" for part in SOAK))


def is_soak(test: str) -> bool:
    """Tell whether a test, named by its pytest node id, runs in the soak only."""
    return _SOAK.match(test) is not None
