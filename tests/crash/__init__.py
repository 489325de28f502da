"""Captures that are killed, run out of room, or lose their power: the old tip or the new one, complete."""
