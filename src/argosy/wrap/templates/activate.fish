# Put the commands of this folder first on PATH:  source @script@
# To undo:  deactivate      Written by Argosy @argosy@, which this script does not need.
set -q ARGOSY_ACTIVE; and functions -q deactivate; and deactivate
set -gx ARGOSY_ACTIVE (realpath (dirname (status filename)))
set -gx PATH $ARGOSY_ACTIVE/bin $PATH
function deactivate
    set -l argosy_place (contains -i -- $ARGOSY_ACTIVE/bin $PATH); and set -e PATH[$argosy_place]
    set -e ARGOSY_ACTIVE
    functions -e deactivate
end
