"""Compare two snapshots, or a snapshot and the working tree.

`tree_diff` and `snapshot_walker` find the paths that differ, by `git diff-tree` or by walking both trees, and skip
equal subtrees. `manifest_diff` reads metadata that a git tree cannot contain. `changes` joins both to changes; a
restore uses the directories of `snapshot_walker` directly.

`facts` compares packages, services, databases and variables. `importance` and `summary` define the order and the
words, for the list, the diff, the page and JSON alike.
"""
