# shellcheck shell=sh
# PROGRAM...: become the start script of the image, as with 'apptainer run'; it becomes the program.
with_runscript() {
    if [ ! -x /.singularity.d/runscript ]; then
        echo "argosy: the image has no start script /.singularity.d/runscript, so nothing was started" >&2
        echo "  -> use --enter exec to start programs without it" >&2
        exit 6
    fi
    exec /.singularity.d/runscript "$@"
}
