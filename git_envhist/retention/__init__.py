"""Decide which snapshots a history keeps.

`drop` moves snapshots to the trash and back; the trash expires after 30 days. `prune` drops snapshots by a policy, on
command or once a day. `purge` erases paths from all snapshots, the trash and everything else of ours that contains
them. `reseal` seals secret files again with the key in use. All of them rewrite timelines with `rewrite/timeline`; gc
frees the space.
"""
