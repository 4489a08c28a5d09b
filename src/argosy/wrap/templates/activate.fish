# Put the commands of this folder first on PATH:  source @script@
# To undo:  deactivate      Written by Argosy @argosy@, which this script does not need.
# A Python venv that is activated later has its own function deactivate; argosy_deactivate then undoes this script.
functions -q argosy_deactivate; and argosy_deactivate
set -gx ARGOSY_ACTIVE (realpath (dirname (status filename)))
set -gx PATH $ARGOSY_ACTIVE/bin $PATH
set -g argosy_venv "$VIRTUAL_ENV"
function argosy_deactivate
    set -l argosy_place (contains -i -- $ARGOSY_ACTIVE/bin $PATH); and set -e PATH[$argosy_place]
    test "$VIRTUAL_ENV" = "$argosy_venv"; and functions -e deactivate
    set -e ARGOSY_ACTIVE
    set -e argosy_venv
    functions -e argosy_deactivate
end
function deactivate
    argosy_deactivate
end
