"""Small histories that earlier versions of the program made, kept so that every later version still reads them.

`build` makes an archive with the real program of a commit: `python -m tests.oldhistories.build <commit>...`. An archive
holds the repository, the home directory with the keys, and the list of each snapshot's paths as lstat and hashlib saw
them. All versions so far write format 1; the chosen commits are those at which `docs/internals/format.md` gained a
record.
"""
