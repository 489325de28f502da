"""Share a history through any git remote, or through a file.

Push: plan from the refs of both sides, scan everything that would be sent for tokens and sensitive classes, sign one
head per timeline (`sign_heads`), send objects in parts, move the refs last (`push`, `upload`).

Fetch: refs are stored in a repository of their own (`snapshots/fetched_store`), metadata first and contents on demand;
signed heads are verified before a known head is replaced (`fetch`, `verify_fetched`). A fetch never overwrites our
own timelines.

Export and import do the same with a bundle (`export`, `bundle`).
"""
