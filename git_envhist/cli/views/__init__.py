"""Turn results into text: lists, cards, diffs, plans."""
