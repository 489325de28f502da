"""Tests of the watcher: what it claims, what it answers, and captures that use it."""
