#%Module1.0
# module use @folder@; module load @module@      Written by Argosy @argosy@.
set prefix [file dirname [file dirname $ModulesCurrentModulefile]]
module-whatis @what@
proc ModulesHelp { } {
    global prefix
    puts stderr "Commands, each in its container: $prefix/bin"
}
prepend-path PATH $prefix/bin
setenv ARGOSY_ACTIVE $prefix
