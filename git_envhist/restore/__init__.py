"""Change the working tree back to a snapshot; a restore can be undone, and a crash loses no file.

1. Capture the environment now; this safety snapshot is published first, and undo returns to it (`restore_runner`).
2. Plan: compare the two snapshots and decide for each path whether it is written, removed, adjusted or skipped
   (`planner`, `plan`, `scope`).
3. Guards: refuse what the file system cannot store, files that a running program uses, and what an unsigned snapshot
   must not write (`guards`, `inspect_unsigned`).
4. Stage: write all new files into slots on the same file system, with metadata and synced (`stage`, `slots`); check
   that the entries to be replaced are as captured (`check_replaced`).
5. Journal: write the list of steps (`journal`), then swap staged entries with those in the tree (`apply_journal`,
   `swap`).
6. Verify: read back what was written (`verify`); empty the slots (`apply_journal`).
7. Publish one more snapshot of the result.

A restore that is killed before 5 has changed nothing; after 5, the next command finishes or undoes it from the journal
(`recover`). Only `disk_calls` and `journal` change a disk; an empty `root` means the working tree, any other is the
name of an additional root.
"""
