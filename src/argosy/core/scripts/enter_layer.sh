# shellcheck shell=sh disable=SC1091
# IMAGE PROGRAM...: become a program in the environment of the image, if its layer is attached.
enter_layer() {
    if [ ! -x /opt/argosy/enter ]; then
        echo "argosy: the runtime did not attach the layer of $1, so nothing was started" >&2
        echo "  -> @HINT@" >&2
        exit 6
    fi
    shift
    . /opt/argosy/enter
}
