"""How fast it is, beside others: `python -m tests.benchmarks` repeats the tables of docs/internals/performance.md."""
