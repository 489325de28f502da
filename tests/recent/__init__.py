"""Test `git envlog recent`."""
