# shellcheck shell=sh
# Arguments made of colons arrive with one colon added: srun and mpiexec read a lone one as a separator of programs.
for argosy_word; do
    shift
    case $argosy_word in "" | *[!:]*) ;; *) argosy_word=${argosy_word#:} ;; esac
    set -- "$@" "$argosy_word"
done
unset argosy_word
exec "$@"
