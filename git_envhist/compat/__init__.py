"""Implement the interfaces of other checkpoint libraries, so that their users only change an import.

Those libraries are not imported. docs/guide/compat.md lists their supported interfaces and the import to change.
"""
