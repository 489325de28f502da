"""The verbs of going back, as `EnvHistory` has them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from git_envhist.core import Core
from git_envhist.model import Snapshot

if TYPE_CHECKING:
    from git_envhist.model import Restored
    from git_envhist.restoring.verbs import Going
    from git_envhist.restoring.wish import Wish


class Returning(Core):
    """Back to a moment, and forth again."""

    def restore(
        self, revision: str | Snapshot, *, dry_run: bool = False, wish: Wish | None = None
    ) -> Restored:
        """Go back to a moment; what is here is saved first, and `undo` brings it back."""
        from git_envhist.restoring.wish import Wish  # loaded late: keeps envlog fast

        return self.going.to(self._snapshot(revision), wish or Wish(dry_run=dry_run))

    def undo(self, steps: int = 1) -> Restored:
        """Go to the newest earlier state that differs from what is here now, so many steps back."""
        return self.going.undo(steps)

    def redo(self, steps: int = 1) -> Restored:
        """Go forth again, where nothing new has come since the last undo."""
        return self.going.redo(steps)

    @cached_property
    def going(self) -> Going:
        """Back, forth, and what goes with it."""
        from git_envhist.restoring.verbs import Going  # loaded late: keeps envlog fast

        return Going(self, self._seeing)
