"""The verbs that look: a list by what is asked for, and what changed of late without any snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

from git_envhist.api import EnvHistory
from git_envhist.core import refuse_endless_trees
from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.lookup import as_sequence, refuse_unknown
from git_envhist.model import Snapshot, Trigger, VerdictStatus

if TYPE_CHECKING:
    from typing import Unpack

    from git_envhist.model.causing import RecentChanges


VERDICTS = (*(one.value for one in VerdictStatus), "none")


class LogKeywords(TypedDict, total=False):
    """What a list is to hold; several words of one kind are alternatives, several kinds must all hold."""

    since: str
    """As `git envlog` reads times: `2 hours ago`, `10:27`."""
    until: str
    grep: Sequence[str]
    """Patterns of which one is in the intent, a name or a note."""
    ignore_case: bool
    verdicts: Sequence[str]
    """`pass`, `fail`, `error`, `none`."""
    triggers: Sequence[str]
    paths: Sequence[str | bytes]
    """git's pathspecs, as from the top: the snapshots that changed what they mean."""
    summary: str
    """A text that the summary or a changed fact contains: a package, a variable, a count. When did flask appear?"""
    content: str
    """A text that was added to a file or removed from one, as `git log -S` has it."""
    content_pattern: str
    """A regular expression that a changed line of a file matches, as `git log -G` has it."""
    span: str
    """A range, as in `git envlog a..b`."""
    every: bool
    """On every timeline, by time."""
    reverse: bool
    """Oldest first."""


class Looking(EnvHistory):
    """What there is, and what was of late."""

    def log(
        self, limit: int | None = None, timeline: str | None = None, **sought: Unpack[LogKeywords]
    ) -> list[Snapshot]:
        """The snapshots of a timeline, newest first; those that were asked for.

        Several words of one kind are alternatives, several kinds must all hold: `since` and `until` (times as
        `git envlog` reads them), `grep` (patterns; `ignore_case`), `summary` (whose summary contains it), `content` and
        `content_pattern` (as `git log -S` and `-G`), `verdicts` (pass, fail, error, none), `triggers`, `paths` (git's
        pathspecs, as from the top: those that changed them), `span` (a range, `a..b`), `every` (on every timeline, by
        time), `reverse` (oldest first).

        >>> _ = history.capture("not checked")
        >>> _ = history.capture("checked", verify="true")
        >>> [one.intent for one in history.log(since="1h", verdicts=["pass"])]
        ['checked']
        >>> [one.intent for one in history.log(grep=["^not"], paths=["*.md"])]
        []
        >>> [one.intent for one in history.log(span="@~1..", reverse=True)]
        ['checked']
        """
        if not sought:
            return super().log(limit, timeline)
        from git_envhist.history.choice import Choice, choose  # loaded late: most lists are whole

        refuse_unknown("log", sought, LogKeywords.__annotations__)

        found = self._reached(sought, timeline)
        choice = Choice(
            sought.get("since"),
            sought.get("until"),
            as_sequence(sought.get("grep", ())),
            sought.get("ignore_case", False),
            _known(sought.get("verdicts", ()), VERDICTS),
            _known(sought.get("triggers", ()), tuple(one.value for one in Trigger)),
            sought.get("summary"),
            sought.get("content"),
            sought.get("content_pattern"),
        )
        chosen = choose(found, choice, self.now)
        paths = tuple(map(os.fsencode, as_sequence(sought.get("paths", ()))))
        if paths:
            chosen = self._that_changed(chosen, paths)
        if choice.summary is not None:
            from git_envhist.capturing.telling import filter_by_summary  # loaded late: likewise

            chosen = filter_by_summary(self.repository.git, chosen, choice.summary, self.keys.opening)
        if choice.searches_content:
            from git_envhist.capturing.searching import those_with_content  # loaded late: likewise

            chosen = those_with_content(self, chosen, choice, paths)
        shown = chosen if limit is None else chosen[:limit]
        return shown[::-1] if sought.get("reverse") else shown

    def recent(self, span: str = "1h") -> RecentChanges:
        """What changed within a span, without any snapshot: by change times, and by what installers and logs say."""
        from datetime import datetime  # loaded late: hardly ever asked for

        from git_envhist.capture.ignore import left_out_of  # loaded late: likewise
        from git_envhist.capturing.zone import LocalZone  # loaded late: likewise
        from git_envhist.history.times import read_moment  # loaded late: likewise
        from git_envhist.recently.looking import look  # loaded late: likewise

        now = datetime.now(LocalZone())
        since = read_moment(span, now).start.astimezone(now.tzinfo)
        root = os.path.realpath(self.repository.root)
        left_out = left_out_of(root, self.settings.exclude)
        return look(root, since, now, self.repository.git, left_out, self._environ)

    def _reached(self, sought: LogKeywords, timeline: str | None) -> Iterable[Snapshot]:
        span, every = sought.get("span"), sought.get("every")
        if span is None:
            return self._everywhere() if every else super().log(None, timeline)
        if every:
            raise UsageError("every timeline and a range exclude each other")
        from git_envhist.history.ranges import resolve_range, snapshots_in_range  # loaded late: likewise

        self.forget_world()
        line = self.world.own if timeline is None else self.world.timeline(timeline)
        if line is None:
            raise SnapshotNotFound(timeline or "", hint="'git envlog --all' lists what there is")
        found = snapshots_in_range(resolve_range(span, self.world, self.now), line)
        return [self.judge(one) for one in found]

    def _everywhere(self) -> list[Snapshot]:
        self.forget_world()
        # What was fetched may be ours: it is told once, by our own copy.
        found: dict[str, Snapshot] = {}
        for line in self.world.timelines():
            for snapshot in line.snapshots:
                found.setdefault(snapshot.id, snapshot)
        return sorted(found.values(), key=lambda snapshot: snapshot.at, reverse=True)

    def _that_changed(self, found: Sequence[Snapshot], pathspecs: tuple[bytes, ...]) -> list[Snapshot]:
        from git_envhist.store.series import commits_changing_paths  # loaded late: likewise

        refuse_endless_trees(self, found)
        steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
        changed = commits_changing_paths(self.repository.git, steps, pathspecs)
        return [snapshot for snapshot in found if snapshot.commit in changed]


def _known(said: Sequence[str], words: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [one for one in as_sequence(said) if one not in words]
    if wrong:
        raise UsageError(f"no such word: '{wrong[0]}'", hint=f"there are: {', '.join(words)}")
    return as_sequence(said)
