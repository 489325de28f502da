"""The verbs of checks, as `EnvHistory` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.model import Moment
from git_envhist.restoring.returning import Returning

if TYPE_CHECKING:
    from git_envhist.model import BisectResult, CheckResult


class Asking(Returning):
    """Whether a moment works."""

    def verify(self, revision: Moment = "now", command: str | None = None) -> CheckResult:
        """Run a check on what is here now, or on an older moment in a throw-away environment of it."""
        checked = self.checks.run(
            revision if isinstance(revision, str) else self._snapshot(revision), command
        )
        self.happened("verified", checked)
        return checked

    def bisect(
        self, good: Moment | None = None, bad: Moment | None = None, command: str | None = None
    ) -> BisectResult:
        """The first moment where a check fails; from `good` to `@`, where they are not said."""
        ends = [one if one is None or isinstance(one, str) else self._snapshot(one) for one in (good, bad)]
        return self.checks.bisect(ends[0], ends[1], command)
