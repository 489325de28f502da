"""Tests of checks and verdicts, with real commands run by the real programs."""
