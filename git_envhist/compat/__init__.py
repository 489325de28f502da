"""Offer the interfaces of other checkpoint libraries on this history: their users change one import.

Nothing of those libraries is imported. docs/guide/compat.md lists what each promises and the line to change.
"""
