"""Random walk over the whole command line, with an independent model of the expected files.

A history is a list of steps drawn from a seed: edits, captures, restores of every kind, undo and redo, forks, drop,
undrop, prune, purge, gc, export, push and fetch (`steps`). `world` carries them out with the real programs and compares
every tree with what find and sha256sum listed earlier; `run` reduces a failing history to its shortest form. The
campaign: `python -m tests.walk --help`.
"""
