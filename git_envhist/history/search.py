"""Select snapshots of a list: by time, words, verdicts, triggers, changed paths, summary and changed text.

`search` applies all keywords of `EnvHistory.log`, the cheap ones first: messages and notes, then changed paths, then
summaries, then the text in files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from git_envhist.diff import compare_series
from git_envhist.errors import GitFailed, UsageError
from git_envhist.git.pathspecs import match_paths
from git_envhist.git.process import Git
from git_envhist.history.catalog import as_sequence
from git_envhist.history.matching_lines import matching_blocks
from git_envhist.history.timeline import (
    SnapshotFilter,
    filter_by_summary,
    filter_snapshots,
)
from git_envhist.model import Change, ChangeSide, EnvPath, Snapshot, StoredAs, Trigger, VerdictStatus

if TYPE_CHECKING:
    from git_envhist.snapshots.sealed_facts import FindFactsKey

VERDICTS = (*(one.value for one in VerdictStatus), "none")
TRIGGERS = tuple(one.value for one in Trigger)
BINARY_START = 8_000
"""A file with a NUL in so many bytes at its beginning is binary for git, and has no lines."""
MAX_LINES_SIZE = 64 << 20
"""Bytes of an opened file up to which its lines are compared."""
MAX_MOVED = 20_000
"""The number of differing lines up to which a line that moved counts as changed, as for git."""
ReadVersion = Callable[[Snapshot, str | None, EnvPath], Iterable[bytes] | None]
"""Return the bytes of a file on one side of a snapshot's step, given its commit; None if it cannot be opened."""
CheckTrees = Callable[[Sequence[Snapshot]], None]
"""Raise `TreeTooLarge` before the trees of these snapshots are compared."""


class LogKeywords(TypedDict, total=False):
    """The keywords of `EnvHistory.log`: all must hold; of several words for one keyword, one."""

    since: str
    """A time as `git envlog` reads it: `2 hours ago`, `10:27`."""
    until: str
    grep: Sequence[str]
    """Patterns; one is found in the intent, a name or a note."""
    ignore_case: bool
    verdicts: Sequence[str]
    """`pass`, `fail`, `error`, `none`."""
    triggers: Sequence[str]
    sessions: Sequence[str]
    """Ids of an agent's sessions, or the beginnings of such ids."""
    agent_ids: Sequence[str]
    """Ids of subagents, or the beginnings of such ids."""
    paths: Sequence[str | bytes]
    """git's pathspecs from the top: snapshots that changed such a path."""
    summary: str
    """A text in the summary or in a changed fact: a package, a variable, a count."""
    content: str
    """A text that was added to a file or removed from one, as for `git log -S`."""
    content_pattern: str
    """A regular expression that a changed line of a file matches, as for `git log -G`."""
    reveal: bool
    """Search sealed files too for `content` and `content_pattern`."""
    span: str
    """A range, as for `git envlog a..b`."""
    all_timelines: bool
    """The snapshots of all timelines, by time."""
    reverse: bool
    """Oldest first."""


def search(
    git: Git,
    found: Iterable[Snapshot],
    keywords: LogKeywords,
    now: datetime,
    find_key: FindFactsKey,
    check: CheckTrees,
    read: ReadVersion,
) -> list[Snapshot]:
    """Return the snapshots that the keywords select, in their order; `span` and `reverse` are the caller's."""
    choice = SnapshotFilter(
        since=keywords.get("since"),
        until=keywords.get("until"),
        grep=as_sequence(keywords.get("grep", ())),
        ignore_case=keywords.get("ignore_case", False),
        verdicts=_known_words(keywords.get("verdicts", ()), VERDICTS),
        triggers=_known_words(keywords.get("triggers", ()), TRIGGERS),
        summary=keywords.get("summary"),
        content=keywords.get("content"),
        content_pattern=keywords.get("content_pattern"),
        sessions=as_sequence(keywords.get("sessions", ())),
        agent_ids=as_sequence(keywords.get("agent_ids", ())),
        reveal=keywords.get("reveal", False),
    )
    chosen = filter_snapshots(found, choice, now)
    paths = tuple(map(os.fsencode, as_sequence(keywords.get("paths", ()))))
    if paths:
        check(chosen)
        chosen = filter_by_paths(git, chosen, paths)
    if choice.summary is not None:
        chosen = filter_by_summary(git, chosen, choice.summary, find_key)
    if choice.searches_content:
        check(chosen)
        chosen = filter_by_content(git, chosen, choice, paths, read)
    return chosen


def filter_by_paths(git: Git, found: Sequence[Snapshot], pathspecs: Sequence[bytes]) -> list[Snapshot]:
    """Return the snapshots that changed a path which the pathspecs match."""
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    changed = compare_series.commits_changing_paths(git, steps, pathspecs)
    return [snapshot for snapshot in found if snapshot.commit in changed]


def filter_by_content(
    git: Git, found: Sequence[Snapshot], choice: SnapshotFilter, pathspecs: Sequence[bytes], read: ReadVersion
) -> list[Snapshot]:
    """Return the snapshots that changed the text of the choice in files; raise `UsageError` for a bad pattern.

    git searches the files that are stored as they are. Files in chunks, and sealed ones if the choice says so, are
    opened and searched here, in memory. A file that cannot be opened on a side is not searched.
    """
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    search = compare_series.ContentSearch(choice.content, choice.content_pattern, choice.ignore_case)
    try:
        listed = compare_series.commits_changing_content(git, steps, search, pathspecs)
    except GitFailed as failed:
        if choice.content_pattern is not None and "regex" in failed.message:
            raise UsageError(
                f"not a pattern: '{choice.content_pattern}'", hint="-S <text> searches for a plain text"
            ) from failed
        raise
    chosen = _changing_opened_files(git, found, listed, search, choice, pathspecs, read)
    return [snapshot for snapshot in found if snapshot.commit in chosen]


def _changing_opened_files(
    git: Git,
    found: Sequence[Snapshot],
    listed: Mapping[str, frozenset[bytes]],
    search: compare_series.ContentSearch,
    choice: SnapshotFilter,
    pathspecs: Sequence[bytes],
    read: ReadVersion,
) -> frozenset[str]:
    """Return the commits of snapshots that changed the text, by the paths that git listed and by opened files."""
    from git_envhist.diff.compare_snapshots import stored_side  # loaded late: only -S and -G need it
    from git_envhist.git.cat_file import CatFile

    kinds = {StoredAs.PLAIN, StoredAs.PIECES, *((StoredAs.SEALED,) if choice.reveal else ())}
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    by_commit = {snapshot.commit: snapshot for snapshot in found}
    chosen = set()
    with CatFile(git) as reader:
        if not choice.reveal:
            with_chunks = set(compare_series.steps_with_chunks(reader, steps))
            steps = [step for step in steps if step[0] in listed or step in with_chunks]
        for commit, changed in compare_series.changes_of(git, reader, steps):
            others = [one for one in changed if _storages(one) - {StoredAs.PLAIN}]
            opened = _limited([one for one in others if _storages(one) <= kinds], git, pathspecs)
            # What git found in a file that is stored in another way on a side is not about its content.
            not_plain = {stored_side(side) for one in others for side in _sides(one)}
            if listed.get(commit, frozenset()) - not_plain or any(
                _has_changed(read, by_commit[commit], change, search, git) for change in opened
            ):
                chosen.add(commit)
    return frozenset(chosen)


def _sides(change: Change) -> list[ChangeSide]:
    return [side for side in (change.before, change.after) if side is not None]


def _storages(change: Change) -> set[StoredAs]:
    return {side.stored for side in _sides(change)}


def _limited(found: list[Change], git: Git, pathspecs: Sequence[bytes]) -> list[Change]:
    """Return the changes whose path matches the pathspecs."""
    if not pathspecs or not found:
        return found
    meant = match_paths(git, [change.path for change in found], (), pathspecs)
    return [change for change in found if change.path in meant]


def _has_changed(
    read: ReadVersion, snapshot: Snapshot, change: Change, search: compare_series.ContentSearch, git: Git
) -> bool:
    old = None if change.before is None else read(snapshot, snapshot.parent, change.before.path)
    new = None if change.after is None else read(snapshot, snapshot.commit, change.after.path)
    if (change.before is not None and old is None) or (change.after is not None and new is None):
        return False
    if search.text is not None:
        text = os.fsencode(search.text)
        return count_text(old, text, search.ignore_case) != count_text(new, text, search.ignore_case)
    before, after = read_text(old), read_text(new)
    return before is not None and after is not None and changes_line(git, before, after, search)


def read_text(blocks: Iterable[bytes] | None) -> bytes | None:
    """Return the blocks of a file as one text; None, without reading on, if it is binary or too large."""
    data = bytearray()
    for block in blocks or ():
        data += block
        if len(data) > MAX_LINES_SIZE or b"\0" in data[:BINARY_START]:
            return None
    return bytes(data)


def count_text(blocks: Iterable[bytes] | None, text: bytes, ignore_case: bool) -> int:
    """Return how often a text occurs in the blocks of a file, as `git log -S` counts."""
    wanted = text.lower() if ignore_case else text
    count, rest = 0, b""
    for block in blocks or ():
        data = rest + (block.lower() if ignore_case else block)
        count += data.count(wanted)
        # A match may begin in this block and end in the next one; one that ended here is not counted again.
        after = _end_of_last(data, wanted)
        rest = data[max(after, len(data) - len(wanted) + 1) :]
    return count


def _end_of_last(data: bytes, wanted: bytes) -> int:
    """Return the place after the last match that counts; matches do not overlap."""
    end = 0
    while (at := data.find(wanted, end)) >= 0:
        end = at + len(wanted)
    return end


def changes_line(git: Git, old: bytes, new: bytes, search: compare_series.ContentSearch) -> bool:
    """Return whether a line that only one of two contents has matches a pattern, as for `git log -G`."""
    lines = _changed_lines(_lines(old), _lines(new))
    # Only the last line of a content may lack its line feed.
    text = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
    return bool(lines) and compare_series.matches_pattern(git, text, search)


def _changed_lines(old: list[bytes], new: list[bytes]) -> list[bytes]:
    """Return the lines that only one side has; of very many, without those that may have moved."""
    is_old_kept, is_new_kept = bytearray(len(old)), bytearray(len(new))
    for at, new_at, size in matching_blocks(old, new):
        is_old_kept[at : at + size] = b"\1" * size
        is_new_kept[new_at : new_at + size] = b"\1" * size
    removed = [line for line, kept in zip(old, is_old_kept, strict=True) if not kept]
    added = [line for line, kept in zip(new, is_new_kept, strict=True) if not kept]
    if len(removed) + len(added) <= MAX_MOVED:
        return removed + added
    before, after = Counter(removed), Counter(added)
    return [*(before - after), *(after - before)]


def _lines(data: bytes) -> list[bytes]:
    """Return the lines with their line feeds, which the last line may lack; a carriage return ends no line."""
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + [last] * bool(last)


def _known_words(words: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [one for one in as_sequence(words) if one not in known]
    if unknown:
        raise UsageError(f"no such word: '{unknown[0]}'", hint=f"the words are: {', '.join(known)}")
    return as_sequence(words)
