"""A capture is a guest: nothing of the user's changes, and nothing of the user's decides what is captured."""
