#%Module1.0
# Argosy @VERSION@ for Environment Modules. Below PREFIX/share/modulefiles/argosy the prefix is found; elsewhere, set it here.
set prefix /opt/argosy/@VERSION@
regexp {^(/.*)/share/modulefiles/argosy/[^/]+$} $ModulesCurrentModulefile all prefix
module-whatis "Argosy @VERSION@: builds GPU container images from environment files, and launches them on Slurm clusters"
proc ModulesHelp { } {
    puts stderr "argosy --help; the programs and profiles of this machine: argosy doctor"
}
conflict argosy
prepend-path PATH $prefix/bin
