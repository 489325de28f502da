"""Rewrite timelines: remove or change snapshots, and keep everything that refers to them consistent.

The new chain, its notes and the trash are written first; one ref transaction by compare-and-swap replaces the old
ones (`timeline`). Caches and private lists follow. `salvage` rebuilds what damaged refs or notes still hold.
"""
