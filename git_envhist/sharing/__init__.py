"""The steps of a push and of a fetch, and how what came from elsewhere stands beside our own.

Wiring, like `capturing/`: it joins what `store/` knows of remotes with what `capture/` knows of secrets.
"""
