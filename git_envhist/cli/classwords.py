"""What `--only` takes beside the names of classes: the words at the left of what `git envdiff` tells."""

from __future__ import annotations

from git_envhist.errors import UsageError
from git_envhist.facts import PACKAGES, kinds

ALSO = {
    "db": "databases",
    "database": "databases",
    "package": "packages",
    "file": "files",
    "service": "services",
}


def class_for_option(word: str) -> str:
    """The class that a restore is to bring back. Of `packages` a word like `pip` means no more than some: their paths
    do not say who installed them, and nothing that was not asked for is brought back."""
    found = class_of_label(word)
    if found != PACKAGES or word in (PACKAGES, "package"):
        return found
    raise UsageError(
        f"what '{word}' installed is not told apart from other packages by a path",
        hint="all of them: --only=packages; one place: git envrestore <rev> -- .venv",
    )


def class_of_label(word: str) -> str:
    """`packages` of `pip`; the word itself where it is no label."""
    return kinds().get(word) or ALSO.get(word, word)
