"""Environments that are at work while they are captured: what is kept of them is true, or said not to be."""
