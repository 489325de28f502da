"""What causes a capture without somebody asking for it: git's hooks, those of coding agents; installed and taken away.

Whoever plugs into a program of others says what is to stand in its files as plain values (`edits.py`), which one
function carries out and a dry run prints; `kept.py` remembers what stood there before.
"""
