"""Change the working tree back to a snapshot, so that it can be undone and a crash loses nothing.

1. Capture what is here; this snapshot is published first, and undo returns to it (`operation`).
2. Plan: compare the two snapshots and decide for each path what is written, removed or kept (`planning`, `plan`,
   `scope`).
3. Guards: refuse what the file system cannot hold, what a running program uses, what an unsigned snapshot must not
   write.
4. Stage: write all new files in slots on the same file system, verified and synced (`stage`, `slots`); compare what
   is on the disk with what was captured.
5. Journal: write the list of swaps (`journal`), then swap staged entries with those in the tree (`swap`).
6. Verify: read back what was written; restore metadata of directories; empty the slots (`verify`, `finish`).
7. Record where the restore arrived as a snapshot of its own.

A restore that was killed before 5 has changed nothing; after 5 the next command finishes or undoes it from the
journal (`recover`). Deciding modules are pure or read only; `fs`, `disk`, `sync` and `journal` alone change the
disk.
"""
