"""Run a command against an environment and store its result with the snapshot.

`verify_and_bisect` runs it now on the working tree, or on an older snapshot in a sandbox (`sandbox`): the snapshot in
a temporary directory, mounted at the original path where the system allows that (`sandbox_exec`). Bisect does so for a
range of snapshots. A result is masked, its output sealed, signed, and written to the notes and to a private list of
this machine (`verdicts`), so that an equal environment is known to pass without running the check again.
`check_command` runs the command with a time limit.
"""
