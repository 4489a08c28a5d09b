#!/bin/sh
# Print a library of MPI that the dynamic linker of the base may find, or "unknown" if the base has no list of libraries.
list=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) || list=
case $list in
*libmpi.so* | *libmpich.so*)
    echo listed
    exit
    ;;
'')
    echo unknown
    exit
    ;;
esac
IFS=:
for folder in $LD_LIBRARY_PATH /opt/*/lib* /opt/*/*/lib* /usr/local/*/lib* /usr/lib*/*/lib*; do
    for library in "$folder"/libmpi.so* "$folder"/libmpich.so*; do
        [ -e "$library" ] || continue
        echo "$library"
        exit
    done
done
