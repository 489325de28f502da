"""Captures beside each other, and beside every git that rewrites packs, refs and caches."""
