"""Mutation campaign: break lines of the program one at a time and see whether the suite notices.

`python -m tests.mutation` runs the default tests once and records which functions each test calls (`calls`), draws
lines from the packages by a seed (`mutants`), and runs for each mutant the tests that call its function, quickest
first, until one fails (`__main__`).
"""
