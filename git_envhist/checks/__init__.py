"""The way of a verdict: a command is run on an environment, and what it came to is said of the moment it saw.

Wiring, as `capturing`, `restoring` and `forking` are.
"""
