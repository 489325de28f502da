"""git's own hooks: where git looks for them, what is put there, and what they do when they are called."""
