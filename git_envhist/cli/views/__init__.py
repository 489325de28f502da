"""Turn results into text: lists, snapshots in full, diffs, plans, check results and the web page."""
