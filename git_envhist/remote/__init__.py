"""Share a history through any git remote, or through a file.

Push: plan from both sides' refs, inspect everything that would leave for tokens and classes that must not, seal a
signed head per timeline (`sign`), send objects in parts, move the refs last (`push`, `upload`).

Fetch: refs come into a repository of their own (`snapshots/fetched`), metadata first, contents when they are needed;
signed heads are checked before a known one is replaced (`fetch`, `verify_fetched`). Nothing fetched overwrites what
is here.

Export and import do the same with a bundle (`export`, `bundle`).
"""
