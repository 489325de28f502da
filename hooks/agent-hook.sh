#!/bin/sh
# Called by a coding agent for an event: before a tool changes something, after a turn. It prints nothing and never
# fails, whatever its input: an agent could take any output for a refusal.
#
#   agent-<name> before|prompt|done|after|end|create|remove
#
# `before` waits for the snapshot, unless its tool only reads. The other events are written to the spool, and a
# background process handles them; `done` (a tool ended) starts none, `end` waits up to 2.5 s for it, `after` up to 8 s
# if the end of the agent would end that process. The first line of a spooled event is the project directory that the agent names.
# `create` and `remove` make and remove a worktree of the agent, which reads their output and status.
program=@PROGRAM@
# Whether the first process is near: a container or a service ends with the agent, and ends every process in it.
ends_all() {
    at=$PPID
    for _ in 1 2 3 4; do
        [ "$at" = 1 ] && return 0
        read -r line <"/proc/$at/stat" || return 1
        set -- ${line##*) }
        at=$2
    done
    return 1
}
case $1 in
    create | remove)
        [ -x "$program" ] || program=git-envhist
        exec "$program" agent-worktree "$1"
        ;;
esac
{
    [ -x "$program" ] || program=$(command -v git-envhist) || { cat; exit 0; }
    agent=${0##*/agent-}
    if [ "$1" = before ]; then
        # Only text before the tool's arguments is searched, so that no argument is taken for the name of the tool.
        event=$(dd bs=4096 count=1)
        tool=${event%%\"tool_input\"*}
        tool=${tool%%\"toolArgs\"*}
        case $tool in
            *\"tool_name\":*) tool=${tool##*\"tool_name\":} ;;
            *\"toolName\":*) tool=${tool##*\"toolName\":} ;;
            *) tool= ;;
        esac
        tool=${tool# }
        tool=${tool#\"}
        case $tool in *\"*) tool=${tool%%\"*} ;; *) tool= ;; esac
        # Agents put the name of our server before the name of a tool: mcp__envhist__environment_history_log.
        own=${tool##*@OWN_PREFIX@}
        if [ "$own" != "$tool" ]; then
            case $tool in
                *[!0-9A-Za-z_:.-]*) ;;
                *) case ' @OWN_READ_ONLY_TOOLS@ ' in *" $own "*) cat; exit 0 ;; esac ;;
            esac
        fi
        case $tool in
            '' | *[!0-9A-Za-z_]*) ;;
            *) case ' @READ_ONLY_TOOLS@ ' in *" $tool "*) cat; exit 0 ;; esac ;;
        esac
        # A module that asks a process with the program loaded, or starts the program.
        python=@PYTHON@ handlers=@HANDLERS@
        if [ -x "$python" ] && [ -f "$handlers/agent_client.py" ]; then
            load='import sys; sys.path.append(sys.argv[1]); import agent_client; agent_client.main()'
            set -- "$python" -I -S -c "$load" "$handlers" "$program" "$0" "$agent"
        else
            set -- "$program" agent-hook "$0" "$agent" before
        fi
        { printf '%s' "$event"; cat; } | "$@"
        cat
        exit 0
    fi
    spool=${0%/*}/spool
    umask 077
    [ -d "$spool" ] || mkdir -p "$spool" || { cat; exit 0; }
    file=$spool/$agent.$1.$$
    while [ -e "$file.told" ] || [ -e "$file" ]; do file=${file}x; done
    # Longer input is cut, but read to its end, so that the writer does not block.
    project=@PROJECT@
    case $project in *'
'*) project= ;; esac
    { { printf '%s\n' "$project"; head -c 8388608; } >"$file"; cat; }
    mv "$file" "$file.told"
    # The last hook waits for the snapshot, for a limited time.
    if [ "$1" = end ]; then
        "$program" agent-hook "$0" "$agent" ended </dev/null
    elif [ "$1" = after ] && ends_all; then
        "$program" agent-hook "$0" "$agent" finished </dev/null
    elif [ "$1" != done ]; then
        # The next event reads the end of a tool: only its time matters.
        "$program" agent-hook "$0" "$agent" spooled </dev/null &
    fi
} >/dev/null 2>&1
exit 0
