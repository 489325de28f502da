"""Captures that are killed, run out of space or lose power: the old tip or the new one, complete."""
