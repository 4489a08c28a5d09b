#!/bin/sh
# Check the programs behind the commands ($@) in the container: print "gone:PATH" for a missing one, "apart:TEXT" for a
# Python that does not find the packages of its venv, and "whole" at the end.
for program in "$@"; do
    [ -e "$program" ] || { printf "gone:%s\n" "$program"; continue; }
    name=${program##*/} venv=${program%/*/*}
    case $name in python | python[0-9]*) ;; *) continue ;; esac
    [ -r "$venv/pyvenv.cfg" ] || continue
    prefix=$("$ARGOSY_WRAP/bin/$name" -I -c "import sys; print(sys.prefix)")
    # shellcheck disable=SC3013
    [ "$prefix/lib" -ef "$venv/lib" ] ||
        printf "apart:%s\n" "$name has the packages of ${prefix:-no environment} instead of $venv"
done
echo whole
