# >>> git-envhist: captures the environment in the background (git envlog uninstall takes these lines away)
@UNLESS@(
	(
		p=@PROGRAM@
		[ -x "$p" ] || p=git-envhist
		command -v nice >/dev/null && exec nice -n 10 "$p" hook @EVENT@ "$PPID" "$@"
		exec "$p" hook @EVENT@ "$PPID" "$@"
	) </dev/null >/dev/null 2>&1 &
)
# <<< git-envhist
