"""The programs, and what they print."""
