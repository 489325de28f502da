"""Captures by itself whenever an environment has come to rest after a change."""
