"""Read the working tree consistently: from the disk to entries.

`scan` walks by directory descriptors and follows no link. `stat_cache` stores each directory as one record,
so that an unchanged one is neither listed nor read. `read_file` reads a file that may change during the read,
`databases` takes SQLite's own locks while it reads a database. `store_content` decides how bytes are stored: plain,
sealed, in chunks, or as a fingerprint; `sealed_copies` finds copies of sealed files. `attributes` reads owners and
extended attributes, and `ignore` matches exclusion patterns. `timeline_name` reads and creates the name of
the working tree's timeline, and `lost_timeline` recovers it. `unfinished_restore` detects an interrupted
restore.
"""
