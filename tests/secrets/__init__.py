"""Secrets: nothing of them leaves the machine, and nobody but their owner reads them."""
