"""Install hooks for git and coding agents, and remove them byte for byte.

Each integration describes the files that it wants as plain values (`edits`); one function writes them, and a dry run
prints them. What a file contained before is kept, so that `uninstall` restores it.
"""
