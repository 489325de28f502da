"""Environments: a directory, a git repository, a container; each can be brought back."""
