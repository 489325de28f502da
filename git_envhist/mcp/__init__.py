"""Serves the verbs to agents over the Model Context Protocol: a tool is a program of ours, and answers as `--json`."""
