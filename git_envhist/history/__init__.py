"""Find, order, select and title snapshots.

`revisions` parses a revision and `resolve` finds its snapshot in the `Catalog`, which `catalog` reads from the
repository; `times` reads times as people write them. `timeline` has the order of snapshots and finds them by id, name,
time or check; `search` selects those of a list. `titles` and `graph` make the lines of a list; `tasks_and_effects`
reads tasks, effects and checkpoints from notes. `why` reads which step and which call of an agent's tool made a change,
and `attribution` decides it; `versions`, `rows` and `blame` read the versions of a path, a fact, a row and a line.
`failure` finds the step that broke a check. `attribution` and `failure` are pure, as all others but `catalog`,
`resolve`, `search` and the rest of these.
"""
