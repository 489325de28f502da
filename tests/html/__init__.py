"""The page for people who would rather look."""
