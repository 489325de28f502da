"""Installations by pip, pipx and uv: `python -m tests.install_matrix`."""
