-- Lmod: module use @folder@; module load @module@      Written by Argosy @argosy@.
local prefix = string.match(myFileName(), "^(/.*)/modulefiles/[^/]+$") or @prefix@
whatis("Name: " .. @name@)
whatis("Description: " .. @what@)
help("Commands of " .. @what@ .. ", each in its container: " .. pathJoin(prefix, "bin"))
prepend_path("PATH", pathJoin(prefix, "bin"))
setenv("ARGOSY_ACTIVE", prefix)
