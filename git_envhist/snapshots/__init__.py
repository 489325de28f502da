"""Snapshots to and from git: the only place that knows the object database."""
