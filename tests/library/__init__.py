"""Test the library as another program uses it."""
