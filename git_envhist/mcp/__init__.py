"""Serve a history to agents over the Model Context Protocol.

`server` lists the tools; `reading_tools` has those that change nothing, `changing_tools` the others, `resources` what
a person can attach. A tool runs one of our programs with `--json` (`programs`), which masks the answer and reports
progress, translates its hints into names of tools (`hints`), and bounds the answer (`answers`) in a declared form
(`schemas`). What changes the environment takes the id of a plan that this server showed (`plans`), and the person
confirms it. `http` serves on a port instead of standard input and output.
"""
