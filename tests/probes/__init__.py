"""Tests of probes: facts that are more than files, e.g. packages and databases."""
