"""A wrapper of the kind that asks many small programs at each start, for comparison; text only.

Its steps are those of the CSC container wrapper tykky 0.5 (https://github.com/CSCfi/hpc-container-wrapper) in its
isolated mode: find the script behind links, read a shared file, look whether this is a container, gather mounts,
squeeze PATH, quote the arguments into one string, and stay as the parent of the container.
"""

from __future__ import annotations

from collections.abc import Sequence

from argosy.shell import join, quote

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
    """Render the wrapper; `container` are the words that start it, `program` what is started in it."""
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
