"""The programs and their output."""
