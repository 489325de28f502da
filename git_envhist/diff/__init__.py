"""Compare two snapshots, or a snapshot and the working tree.

`walk` and `compare` find the paths that differ, with equal subtrees skipped; `manifest` what a git tree cannot hold.
`facts` compares packages, services, databases and variables. `importance` and `summary` decide the order and the
words of a story: one place for the list, the diff, the page and JSON.
"""
