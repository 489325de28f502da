"""Answer questions about the past: which snapshots a revision means, how they are ordered, filtered, titled and folded.

`revisions` parses, `resolve` finds, `catalog` reads the timelines. The other modules are pure.
"""
