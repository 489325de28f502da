"""Compare two snapshots, or a snapshot and the working tree.

`tree_diff` and `walk` find the paths that differ, by `git diff-tree` or by walking both trees, and skip equal
subtrees. `manifest` reads metadata that a git tree cannot contain. `compare` joins both to changes; a restore uses the
directories of `walk` directly.

`facts` compares packages, services, databases and variables. `importance` and `summary` define the order and the
words, for the list, the diff, the page and JSON alike.
"""
