"""Tests of secrets: no secret leaves the machine, and only its owner can read it."""
