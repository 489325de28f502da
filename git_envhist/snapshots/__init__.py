"""Read and write snapshots as git objects, refs and notes; docs/internals/format.md describes the bytes.

`names`, `quoting`, `layout`, `manifest`, `message`, `records` and `heads` define the formats (pure). `log` reads a
timeline with one `git log`; `reader` reads the files of a snapshot. Publishing (`staging`, `publish`):

1. Each pack is written to a staging directory. Its `.keep` file marks it as ours.
2. Packs and indexes are synced and renamed into the object directory, the index last.
3. The commit and its first note are written as one more pack; the connectivity of the new objects is checked.
4. One ref transaction moves the timeline and the notes by compare-and-swap. If a ref moved meanwhile, the commit is
   created again on the new tip.
5. The directory of the refs is synced. The snapshot exists from here on.
"""
