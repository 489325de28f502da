"""Benchmarks in comparison with other programs: `python -m tests.benchmarks` repeats docs/internals/performance.md's
tables."""
