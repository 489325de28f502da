"""Read the working tree truthfully: from the disk to entries.

`scan` walks by directory descriptors and follows no link. `stat_cache` remembers each directory as one record, so
that an unchanged one is neither listed nor read. `read_file` reads a file that may change meanwhile, `databases`
holds SQLite's own locks while it reads a database, `content` decides how bytes are kept: plain, sealed, in chunks,
or as a fingerprint.
"""
