"""Captures do not change the user's data, and the user's configuration does not change captures."""
