"""The interfaces of other checkpoint libraries, on this history: whoever uses one of them changes an import.

Nothing of theirs is imported here. What each of them promises, and the line to change, stands in docs/compat.md.
"""
