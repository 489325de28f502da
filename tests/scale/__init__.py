"""Campaign: many files under a memory limit, processes killed for memory, and many snapshots.

`python -m tests.scale --files 300000 --limit 400` and `python -m tests.scale --snapshots 20000`; the figures are in
`docs/internals/scale.md`. The limit is the memory controller's (control groups of either version), which needs root.
"""
