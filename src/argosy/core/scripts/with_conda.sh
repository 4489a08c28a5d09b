# shellcheck shell=bash
# PROGRAM...: become a program in the conda environment of the image. The image's variable WITH_CONDA holds
# the command that activates it, for example "source /opt/miniconda3/bin/activate pytorch".
with_conda() {
    if [ -z "${WITH_CONDA:-}" ]; then
        echo "argosy: the image does not set WITH_CONDA, so nothing was started" >&2
        echo "  -> use --enter exec for an image without a conda environment" >&2
        exit 6
    fi
    $WITH_CONDA || exit 6
    exec "$@"
}
