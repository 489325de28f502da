"""Serve a history to agents over the Model Context Protocol.

Each tool (`server`) runs one of our programs with `--json`, masks the answer and bounds it (`answers`). A tool that
changes something takes the id of a plan that this server showed.
"""
