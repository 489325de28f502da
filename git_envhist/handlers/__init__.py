"""Entry points that git, agents and the daily timer call. They print nothing and never make the caller fail."""
