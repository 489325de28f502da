"""The way of a fork: a place beside the environment, a moment written there, a timeline that begins there.

Wiring, as `capturing` and `restoring` are.
"""
