"""What `--only` takes beside the names of classes: the words at the left of what `git envdiff` tells."""

from __future__ import annotations

from git_envhist.facts import kinds

ALSO = {
    "db": "databases",
    "database": "databases",
    "package": "packages",
    "file": "files",
    "service": "services",
}


def class_of_label(word: str) -> str:
    """`packages` of `pip`; the word itself where it is no label."""
    return kinds().get(word) or ALSO.get(word, word)
