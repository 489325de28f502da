"""The verbs that take a moment, as `EnvHistory` has them: of the environment, or to hold it against another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from git_envhist.lookup import as_sequence
from git_envhist.model import TOP, CaptureResult, Moment, SnapshotDiff
from git_envhist.store.durable import system_errors
from git_envhist.store.git import Git
from git_envhist.verifying.asking import Asking

if TYPE_CHECKING:
    from typing import Unpack

    from git_envhist.capturing.present import LiveTree
    from git_envhist.capturing.request import CaptureKeywords


class Taking(Asking):
    """Captures and comparisons."""

    def capture(self, intent: bytes | str | None = None, **asked: Unpack[CaptureKeywords]) -> CaptureResult:
        """Take a snapshot of the whole environment; then check it, where that is asked for or configured.

        What can be asked for by name, as `git envlog capture` has it: `name`; `verify`, the command that says whether
        it works; `if_changed`, none where nothing changed; `strict`, refused where something cannot be read; `dry_run`,
        nothing is kept; `force`, also of a home directory; `meta`, values by keys; `external_id`, another program's id.

        Kept with it, sealed: `attach` (files), `attached` ((name, bytes)), `conversation` and `tool_outputs` (lists of
        plain values). Who causes it: `trigger`, `actor`, and `intent_source`, where the words come from. Called:
        `progress`, how far it is; `waiting`, somebody else holds the environment; `captured`, it is there, and is going
        to be checked; `watching`, while the check runs.
        """
        from git_envhist.capturing.request import capture_options  # loaded late: keeps envlog fast

        if asked.get("conversation") is not None or asked.get("tool_outputs") is not None:
            from git_envhist.doing.keeping import attachment_files  # loaded late: likewise

            told = attachment_files(asked.get("conversation"), asked.get("tool_outputs"))
            asked["attached"] = (*asked.get("attached", ()), *told)
        asked.setdefault("progress", self.progress)
        request = capture_options(intent, asked)
        with system_errors(self.repository.git_dir):
            captured = self._capturing.capture(request)
        self.forget_world()
        request.captured(captured)
        wanted = asked.get("verify") or self.settings.verify
        done = self.checks.after_capture(captured, request, asked) if wanted else captured
        self.happened("captured", done)
        return done

    def diff(
        self,
        before: Moment | None = "@",
        after: Moment = "now",
        pathspecs: Sequence[str | bytes] = (),
        *,
        renames: int | None = None,
    ) -> SnapshotDiff:
        """Two moments side by side; `now` is the live environment. Git's pathspecs choose, as from the top.

        `renames`: a file that went and one that came are one change, where so many percent of them are alike.
        """
        from git_envhist.capturing.factdiff import compare_moments  # loaded late: keeps envlog fast

        chosen = tuple(map(os.fsencode, as_sequence(pathspecs)))
        for one in (before, after) if renames is not None else ():
            if one is not None and one != "now":
                # What was moved is told by its contents.
                self.bring(self._snapshot(one), TOP)
        with self.sides(before, after) as (git, old, new):
            compared = compare_moments(git, old, new, chosen, renames, self.keys.opening)
            return SnapshotDiff(_called(before), _called(after), *compared)

    @contextmanager
    def sides(self, before: Moment | None, after: Moment) -> Iterator[tuple[Git, str | None, str]]:
        """(git, a tree, another), with `now` captured into a staging for as long as the context is open."""
        if "now" not in (before, after):
            yield self.repository.git, self._tree(before), self._tree(after) or ""
            return
        with self.present() as present:
            old = present.tree if before == "now" else self._tree(before)
            new = present.tree if after == "now" else self._tree(after)
            yield present.git, old, new or ""

    @contextmanager
    def present(self) -> Iterator[LiveTree]:
        """The live environment, captured into a staging that is thrown away."""
        from git_envhist.capturing.present import LiveTree  # loaded late: with the capture itself

        with self._capturing.present() as held:
            yield LiveTree(self.repository.git.with_objects(held.staging.path), held.finish().tree)


def _called(moment_of: Moment | None) -> str:
    return moment_of or "" if isinstance(moment_of, str | None) else moment_of.id or "@"
