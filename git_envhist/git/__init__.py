"""Run git, and read what it stores: configuration, refs, index, objects. This package knows nothing about snapshots.

`process` runs each git with a clean environment, without hooks and other commands of the configuration. `limits` runs
one on untrusted data, or against a server, under limits of memory, time and output.

`repository` opens a repository and moves refs by compare-and-swap; `refs` removes locks of killed gits, after looking
for running ones (`other_users` for those of other users). `cat_file` reads objects, `status` compares the working
tree with the index and HEAD, `pathspecs` matches paths.
"""
