f() { @UNLESS@( ( p=@PROGRAM@; [ -x "$p" ] || p=git-envhist; exec "$p" hook @EVENT@ "$PPID" "$@" ) </dev/null >/dev/null 2>&1 & ); }; f
