"""What whoever waits for a check is told; by itself, since every capture passes here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from git_envhist.model import CheckResult, Snapshot


class CheckListener(NamedTuple):
    """What whoever waits for a check is told."""

    running: Callable[[str], None] | None = None
    """The command, before it runs."""
    through: Callable[[bytes], None] | None = None
    """What it writes, as it comes."""
    waiting: Callable[[], None] | None = None
    """That another check comes first."""
    trying: Callable[[Snapshot, int, int], None] | None = None
    """The moment that is to be checked next, how many may be the first bad one, how many checks that takes at most."""
    tried: Callable[[CheckResult], None] | None = None
    """What that check came to."""


UNWATCHED = CheckListener()
