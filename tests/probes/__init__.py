"""Facts beyond files."""
