# What stood here before is called with the same words and input, and its status is the status.
[ -x "$0.pre-envhist" ] && exec "$0.pre-envhist" "$@"
[ -x "${0%/*}/@EVENT@.pre-envhist" ] && exec "${0%/*}/@EVENT@.pre-envhist" "$@"
exit 0
