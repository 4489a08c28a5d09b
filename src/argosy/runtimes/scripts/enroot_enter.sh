# shellcheck shell=sh
# In the container. Arguments: FOLDER, VARIABLES, --, then the command. It starts in the environment of the image.
cd -- "$1" || exit 125
shift
while [ "$1" != -- ]; do
    export "${1?}"
    shift
done
shift
# shellcheck disable=SC1091
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
exec "$@"
