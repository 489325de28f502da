"""Tests of retention: drop, prune, purge and reseal."""
