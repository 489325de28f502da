"""Run a command against an environment and store its result with the snapshot.

`verify` runs it now, on the working tree, or on an older snapshot in a sandbox (`sandbox`), which is a fork in a
temporary directory that the command sees at the original path where the system allows that. `bisect` does so for a
range of snapshots. A result is masked, its output sealed, signed, and written to the notes and to a private list of
this machine (`verdicts`), so that an environment with the same contents is known to be good without running the
check again.
"""
