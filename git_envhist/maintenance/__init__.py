"""Keep a history clean and whole.

Gc (`gc`): remove staging directories of killed captures, drop the trash that is older than its limit, compute what
refs and records reach, write packs that lose too much again (`repack`, `weigh_packs`), merge small packs
(`merge_packs`), and remove old packs only when no git process can be reading them: they are moved aside first, and
moved back if one is.

Fsck (`fsck`) checks packs, indexes, refs, trees and manifests and names the snapshots that damage touches; `repair`
sets damaged packs and refs aside. `daily` starts gc once a day in the background.
"""
