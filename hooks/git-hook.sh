# >>> git-envhist: captures the environment in the background (git envlog uninstall removes these lines)
@UNLESS@(
	# Capture even if the terminal closes as soon as git ends.
	trap '' HUP
	# Write this before git continues: a push right after it sees that a capture is pending.
	l=${GIT_DIR:-.git}/envhist/hooks/last-@EVENT@
	{ [ -d "${l%/*}" ] || [ ! -d "${GIT_DIR:-.git}" ] || mkdir -p -m 700 "${l%/*}"; echo $$ >"$l"; } 2>/dev/null || :
	p=@PROGRAM@
	[ -x "$p" ] || p=git-envhist
	# Wait until the calling git command ends, for at most two seconds, so as not to slow it down. Of several hooks in a
	# row only the last one starts the program; every push starts it.
	w='exec >/dev/null; n=0; while [ $n -lt 40 ] && kill -0 "$1" && sleep 0.05; do n=$((n + 1)); done
		[ "$2" != pre-push ] && read -r k <"$3" && [ "$k" != "$4" ] && exit 0
		shift 4; command -v nice >/dev/null && exec nice -n 10 "$@"; exec "$@"'
	s=; command -v setsid >/dev/null && s=setsid
	r() { $s sh -c "$w" sh "$PPID" @EVENT@ "$l" $$ "$p" hook @NAMED@@EVENT@ "$PPID" "$@" </dev/null 2>/dev/null & }
	# Codex kills the process group of a command that ended, so git waits until the process has a session of its own.
	if [ "${CODEX_THREAD_ID-}" ]; then : "$(r "$@")"; else r "$@" >/dev/null; fi
)
# <<< git-envhist
