"""Environments in use while they are captured: stored content is correct or reported as unstable."""
