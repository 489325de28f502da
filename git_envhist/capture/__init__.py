"""Store the working tree as a snapshot.

1. Lock: the working tree alone, the repository shared with other captures (`pipeline`).
2. Scope: the roots, patterns and mounts that belong to the environment (`scope`).
3. Walk: worker processes compare each directory with its record in the stat cache and read only changed files
   (`parallel_scan`, `worker`); files with secrets are sealed before they are stored. All new objects go into packs in a
   staging directory.
4. Trees: changed directories get new trees and manifest shards, unchanged ones keep theirs (`tree_builder`,
   `environment_trees`).
5. Facts: probes read what changed (`probe_runner`), services may have been dumped before the locks were taken.
6. Publish: the packs are synced and renamed into the repository, then one ref transaction adds the commit to the
   timeline (`captured_tree`, `snapshots/publish`). Only then is the snapshot reported.
7. The stat cache is written, so that the next capture skips what is unchanged.

A step that fails before 6 leaves the timeline as it was; the next capture removes the staging directory.
"""
