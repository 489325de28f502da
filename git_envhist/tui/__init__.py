"""Show a history on a terminal: the list of snapshots on the left, the selected one on the right.

It runs our own programs and reads their JSON (`programs`); it imports nothing that reads a repository.
"""
