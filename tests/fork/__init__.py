"""Tests of forks: environments of their own that begin at a moment."""
