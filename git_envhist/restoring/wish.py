"""What a caller wants of a restore."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.model import Progress, Restored, Snapshot
from git_envhist.services.states import NONE, Dumps
from git_envhist.values import dataclass

STOPPED = "stopped"
"""The word of a journal for the services that do not run while it is not at its end."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One restore, as it was asked for."""

    pathspecs: tuple[bytes, ...] = ()
    """Spelled as from the top."""
    classes: frozenset[str] | None = None
    keep_new: bool = False
    keep_code: bool = False
    head: bool = False
    relocate: bool = False
    """What comes of another working tree and names its place is to name this one."""
    force: bool = False
    foreign: bool = False
    links: bool = True
    """With `force`: links of others may lead anywhere."""
    dry_run: bool = False
    services: bool = False
    """With the state of the services that are configured."""
    dumps: Dumps = NONE
    """What these gave: it is saved with what is here."""
    stopped: tuple[str, ...] = ()
    """The services that do not run meanwhile."""
    planned: Callable[[Restored], None] | None = None
    """Told the plan, before anything is saved."""
    saved: Callable[[Snapshot], None] | None = None
    """Told the moment that holds what was here."""
    progress: Callable[[Progress], None] | None = None
    waiting: Callable[[], None] | None = None


NO_WISH = Wish()
