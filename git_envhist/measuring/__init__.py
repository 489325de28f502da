"""How large moments are, how many packages they hold, and where what changed in a step lies."""
