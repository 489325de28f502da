"""Read and write snapshots as git objects, refs and notes; docs/internals/format.md describes the bytes.

`names`, `quoting`, `layout`, `manifest`, `message`, `records` and `heads` are the formats (pure). `log` reads a
timeline by one `git log`, `reader` the files of a snapshot. Publishing (`staging`, `publish`):

1. Packs are written in a staging directory with a `.keep` file each, whose content marks them as ours.
2. Packs and indexes are synced and renamed into the object directory, the index last.
3. The commit and its first note are a pack of their own; connectivity of the new objects is checked.
4. One ref transaction moves the timeline and the notes by compare-and-swap; if a ref moved, the commit is made again
   on the new tip.
5. The directory of the refs is synced. Only now the snapshot exists.
"""
