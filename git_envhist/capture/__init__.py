"""The way through the house that a capture takes: looking, taking, assembling, publishing.

The one place besides `api` that joins the rooms `capture` and `store`.
"""
