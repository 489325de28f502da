"""The verbs that take a moment, as `EnvHistory` has them: of the environment, or to hold it against another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from git_envhist.model import Captured, Comparison, Snapshot
from git_envhist.store.durable import told_by_the_system
from git_envhist.store.git import Git
from git_envhist.verifying.asking import Asking

if TYPE_CHECKING:
    from typing import Unpack

    from git_envhist.capturing.present import Present
    from git_envhist.capturing.request import Asked


class Taking(Asking):
    """Captures and comparisons."""

    def capture(self, intent: bytes | str | None = None, **asked: Unpack[Asked]) -> Captured:
        """Take a snapshot of the whole environment; then check it, where that is asked for or configured."""
        from git_envhist.capturing.request import make_request  # loaded late: keeps envlog fast

        request = make_request(intent, asked)
        with told_by_the_system(self.repository.git_dir):
            captured = self._capturing.capture(request)
        self.forget_world()
        request.captured(captured)
        wanted = asked.get("verify") or self.settings.verify
        return self.checks.after_capture(captured, request, asked) if wanted else captured

    def diff(
        self, before: Snapshot | str | None, after: Snapshot | str, pathspecs: Sequence[bytes] = ()
    ) -> Comparison:
        """Two moments side by side; `now` is the live environment."""
        from git_envhist.capturing.factdiff import compare_moments  # loaded late: keeps envlog fast

        with self.sides(before, after) as (git, old, new):
            return Comparison(_called(before), _called(after), *compare_moments(git, old, new, pathspecs))

    @contextmanager
    def sides(
        self, before: Snapshot | str | None, after: Snapshot | str
    ) -> Iterator[tuple[Git, str | None, str]]:
        """(git, a tree, another), with `now` captured into a staging for as long as the context is open."""
        if "now" not in (before, after):
            yield self.repository.git, self._tree(before), self._tree(after) or ""
            return
        with self.present() as present:
            old = present.tree if before == "now" else self._tree(before)
            new = present.tree if after == "now" else self._tree(after)
            yield present.git, old, new or ""

    @contextmanager
    def present(self) -> Iterator[Present]:
        """The live environment, captured into a staging that is thrown away."""
        from git_envhist.capturing.present import Present  # loaded late: with the capture itself

        with self._capturing.present() as held:
            yield Present(self.repository.git.with_objects(held.staging.path), held.finish().tree)


def _called(moment_of: Snapshot | str | None) -> str:
    return moment_of.id if isinstance(moment_of, Snapshot) else moment_of or ""
