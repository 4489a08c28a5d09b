# shellcheck shell=sh
# Write the environment definition file to the folder where srun looks for it; it may contain secrets.
write_edf() {
    argosy_edf=$HOME/.edf/argosy-$SLURM_JOB_ID-$$.toml
    trap 'rm -f "$argosy_edf"' EXIT
    mkdir -p "$HOME/.edf"
    (umask 077 && printf '%s\n' "$@" > "$argosy_edf")
}
