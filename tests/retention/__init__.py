"""Retention: what is kept, what goes, and what comes back."""
