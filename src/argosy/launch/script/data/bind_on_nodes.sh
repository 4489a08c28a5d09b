# shellcheck shell=sh disable=SC2034
# Bind these paths into the container if the node has them: the runtime fails for a missing path.
bind_on_nodes() { argosy_node_paths=$*; }
