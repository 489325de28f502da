"""The environment, read truthfully: from the disk to entries."""
