"""Clean, check and repair a repository.

Gc (`gc`): remove staging directories of killed captures, compute what refs, reflogs and indexes reach, rewrite packs
that waste too much space (`pack_usage` decides, `repack` writes), and remove the old packs only when no git process
can be reading them: they are moved aside first, and moved back if one is. Between captures, small packs are merged
without inflating anything (`merge_packs`). `daily` starts gc once a day in the background.

Fsck (`fsck`) checks refs, packs, trees and caches, and lists the snapshots that damage affects. `repair` writes intact
objects into new packs, recovers lost ones, and sets damaged packs and refs aside. `disk_usage` measures for `du`.
"""
