# shellcheck shell=sh disable=SC1091
# IMAGE HELPER...: set the environment of the image, if the runtime attached its layer: without it,
# programs of the base image would run by mistake.
with_layer() {
    if [ ! -r /opt/argosy/env.sh ]; then
        echo "argosy: the runtime did not attach the layer of $1, so nothing was started" >&2
        echo "  -> @HINT@" >&2
        exit 6
    fi
    shift
    . /opt/argosy/env.sh
    "$@"
}
