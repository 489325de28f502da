"""Find, order, select and title snapshots.

`revisions` parses a revision and `resolve` finds its snapshot in the `Catalog`, which `catalog` reads from the
repository; `times` reads times as people write them. `timeline` has the order of snapshots and finds them by id, name,
time or check; `search` selects those of a list. `titles` and `graph` make the lines of a list; `tasks_and_effects`
reads tasks, effects and checkpoints from notes. All but `catalog`, `resolve` and `search` are pure.
"""
