"""Environments with checkpoints: a directory, a git repository, a container."""
