"""Captures that run at the same time as each other and as every git command that rewrites packs, refs and caches."""
