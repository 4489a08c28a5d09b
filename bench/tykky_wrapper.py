"""A wrapper script with the steps of tykky's wrappers, to compare the time that it takes with other ways to start."""

from __future__ import annotations

from collections.abc import Sequence

from argosy.core.shell import join, quote

SHARED = r"""
folders=""
for each in /projappl /scratch /users /project /work /home; do
    if [[ -d $each ]]; then folders=$folders,$each; fi
done
seen=$(ls -1 / | awk '!/dev/' | sed 's/^/\//g')
if grep -q 'singularity/mnt/session\|apptainer/mnt/session' /proc/self/mountinfo; then inside=yes; else inside=no; fi
programs=$(realpath "$here")
above=$(realpath "$here/..")
export SINGULARITY_BIND=${folders#,}
squeezed=$(echo "$OLD_PATH" | tr ':' '\n' | tr -s '/' | tr '\n' ':')
libraries=$(echo "${LD_LIBRARY_PATH-}" | tr ':' '\n' | tr -s '/' | tr '\n' ':')
"""


def render_scripted(container: Sequence[str], program: str) -> str:
    """Render the wrapper of a program.

    Parameters
    ----------
    container
        Command that starts the container.
    program
        Path of the program in the container.
    """
    return f"""\
#!/bin/bash
export OLD_PATH=$PATH
export PATH=/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/bin
self=${{BASH_SOURCE[0]}}
while [ -h "$self" ]; do
    here=$(cd -P "$(dirname "$self")" && pwd)
    self=$(readlink "$self")
    [[ $self != /* ]] && self=$here/$self
done
here=$(cd -P "$(dirname "$self")" && pwd)
source "$here/../common.sh"
{join(container)} bash -c "exec -a {quote(program)} {quote(program)}$(test $# -eq 0 || printf ' %q' "$@")"
"""
