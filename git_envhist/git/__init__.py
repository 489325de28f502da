"""Run git and read what git keeps: configuration, refs, index, objects. This package knows nothing of snapshots.

Each child runs with a clean environment and with `safe.bareRepository=explicit` (`process`); one that talks to a
server runs under limits of memory and time (`limits`).
"""
