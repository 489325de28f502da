#!/bin/sh
# Called by a coding agent at a moment of its work: before it changes something, after a turn. Nothing is printed and
# nothing fails, whatever comes in: to an agent, a word here could mean "refused".
#
#   agent-<name> before|prompt|after|end
#
# `before` waits for the snapshot, unless its tool only looks. The others write the event into the spool and end; a
# process of its own does the rest, and `end` waits up to 2.5 s for it. The first line of a spooled event is the project directory that the agent names.
{
    program=@PROGRAM@
    [ -x "$program" ] || program=$(command -v git-envhist) || { cat; exit 0; }
    agent=${0##*/agent-}
    if [ "$1" = before ]; then
        # What stands before the words of the tool is the agent's own: nothing that a tool is told is taken for its name.
        told=$(dd bs=4096 count=1)
        tool=${told%%\"tool_input\"*}
        tool=${tool%%\"toolArgs\"*}
        case $tool in
            *\"tool_name\":*) tool=${tool##*\"tool_name\":} ;;
            *\"toolName\":*) tool=${tool##*\"toolName\":} ;;
            *) tool= ;;
        esac
        tool=${tool# }
        tool=${tool#\"}
        case $tool in *\"*) tool=${tool%%\"*} ;; *) tool= ;; esac
        case $tool in
            '' | *[!0-9A-Za-z_]*) ;;
            *) case ' @LOOKING@ ' in *" $tool "*) cat; exit 0 ;; esac ;;
        esac
        { printf '%s' "$told"; cat; } | "$program" agent-hook "$0" "$agent" before
        cat
        exit 0
    fi
    spool=${0%/*}/spool
    umask 077
    [ -d "$spool" ] || mkdir -p "$spool" || { cat; exit 0; }
    told=$spool/$agent.$1.$$
    while [ -e "$told.told" ] || [ -e "$told" ]; do told=${told}x; done
    # What is longer than any such message is cut, and read to its end all the same: nobody is left writing.
    project=@PROJECT@
    case $project in *'
'*) project= ;; esac
    { { printf '%s\n' "$project"; head -c 8388608; } >"$told"; cat; }
    mv "$told" "$told.told"
    case $1 in
        # The last hook of a session waits for the snapshot, but not long.
        end) "$program" agent-hook "$0" "$agent" ended </dev/null ;;
        *) "$program" agent-hook "$0" "$agent" spooled </dev/null & ;;
    esac
} >/dev/null 2>&1
exit 0
