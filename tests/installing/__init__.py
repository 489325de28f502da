"""Installations by pip, pipx and uv: `python -m tests.installing`."""
