-- Argosy @VERSION@ for Lmod. Below PREFIX/share/modulefiles/argosy the prefix is found; elsewhere, set it here.
local prefix = string.match(myFileName(), "^(/.*)/share/modulefiles/argosy/[^/]+$") or "/opt/argosy/@VERSION@"
whatis("Name: Argosy")
whatis("Version: @VERSION@")
whatis("Description: builds GPU container images from environment files, and launches them on Slurm clusters")
help("argosy --help; the programs and profiles of this machine: argosy doctor")
family("argosy")
prepend_path("PATH", pathJoin(prefix, "bin"))
