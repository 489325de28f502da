"""Rewrite timelines: drop, restore or change snapshots, and keep everything that refers to them consistent.

`commits` writes the new commit of a snapshot; its id stays. `timeline` rewrites a whole timeline: the new chain, its
notes and the trash are written first, then one ref transaction by compare-and-swap replaces the old ones; caches and
private lists follow. `erase` removes paths from a snapshot's trees and lists. `mark_dropped` collects snapshots to be
dropped together. `salvage` finds damaged refs and rebuilds timelines and notes from the packs.
"""
