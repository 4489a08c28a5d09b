# shellcheck shell=sh disable=SC2034
# Bind these paths into the container if the node has them: a missing one would end the runtime.
bind_on_nodes() { argosy_node_paths=$*; }
