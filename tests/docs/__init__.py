"""Documents, run."""
