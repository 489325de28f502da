"""Shared helpers: repositories, trees described as data, and independent judges of trees."""
