# Source this file in fish:  source tykky.fish      tykky activate NAME|DIR; tykky deactivate      Written by Argosy.
function tykky
    switch "$argv[1]"
        case activate
            if test -z "$argv[2]"
                echo "tykky: no environment is given; use: tykky activate NAME|DIR" >&2
                return 1
            end
            for place in (string split : -- "$TYKKY_PATH")/$argv[2] $argv[2]
                if test -r "$place/activate"
                    tykky deactivate
                    set -gx TYKKY_PREFIX (realpath "$place")
                    set -gx PATH $TYKKY_PREFIX/bin $PATH
                    return
                end
            end
            echo "tykky: there is no environment $argv[2]" >&2
            return 1
        case deactivate
            if set -q TYKKY_PREFIX
                set -gx PATH (string match -v -- "$TYKKY_PREFIX/bin" $PATH)
                set -e TYKKY_PREFIX
            end
        case '*'
            echo "tykky activate NAME|DIR"
            echo "tykky deactivate"
    end
end
complete -c tykky -n __fish_use_subcommand -x -a 'activate deactivate'
@options@
