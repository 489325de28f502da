"""The way of a server's state: told by the user's own commands, kept with a moment, brought back with it.

Wiring, as `capturing` and `restoring` are.
"""
