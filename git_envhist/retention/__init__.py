"""Decide what a history keeps: drop and undrop, prune by policy, purge paths, reseal with a new key."""
