"""Install hooks for git and coding agents, and remove them byte for byte.

Each integration describes the files that it wants as plain values (`edits`); one function writes them, and a dry run
prints them. The earlier content of each file is kept, so that `uninstall` restores it.
"""
