"""Record what belongs to a timeline besides files: tasks, effects outside the machine, attachments.

Tasks, effects and checkpoints of a platform are records in the notes of snapshots (`history.work` reads them), so that
they are pushed and fetched with the notes. Attachments are sealed blobs, in a snapshot or in the tree of the notes.
"""
