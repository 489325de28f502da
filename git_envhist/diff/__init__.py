"""Compare two snapshots, or a snapshot and the working tree.

`tree_diff` and `walk` find the paths that differ, by `git diff-tree` or by walking both trees, and skip equal
subtrees. `manifest` reads what a git tree cannot contain. `compare` joins both to changes; a restore takes the
directories of `walk` as they are.

`facts` compares packages, services, databases and variables. `importance` and `summary` define the order and the
words, for the list, the diff, the page and JSON alike.
"""
