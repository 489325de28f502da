"""Tests of the HTML page of a history (`git envlog --html`)."""
