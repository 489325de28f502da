"""Read timelines and the catalog of everything that a revision can refer to.

A timeline is read by one `git log`; those of a remote come from the repository of fetched timelines. The `Catalog`
reads other timelines, the trash and git's commits only when a revision needs them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from git_envhist.errors import Damaged, GitFailed, UsageError
from git_envhist.git.process import Git
from git_envhist.git.repository import TIMELINE_REFS, TRASH_REFS, Repository
from git_envhist.history.timeline import Catalog, Timeline
from git_envhist.lazy import once, replace
from git_envhist.model import EnvPath, Snapshot
from git_envhist.snapshots.fetched_store import REMOTES, FetchedStore, is_fetched, split_name
from git_envhist.snapshots.log import Warn, read_chain

if TYPE_CHECKING:
    from git_envhist.secrets.keys import KeyRing


def as_sequence(value: object) -> tuple[Any, ...]:
    """Return a sequence as a tuple; a single word, for Python a sequence of letters, as its only element."""
    return (value,) if isinstance(value, str | bytes | os.PathLike) else tuple(cast("Iterable[Any]", value))


def refuse_unknown(verb: str, keywords: Iterable[str], known: Iterable[str]) -> None:
    """Raise `TypeError` for an unknown keyword, as Python does for a function with named parameters."""
    unknown = sorted(set(keywords).difference(known))
    if unknown:
        raise TypeError(f"{verb}() got an unexpected keyword argument '{unknown[0]}'")


PushedTip = Callable[[str, str], str | None]
"""Return the commit that a push left as the tip of a timeline at a remote, given the remote and the timeline."""


def read_timeline(
    repository: Repository, name: str, limit: int | None, pushed_tip: PushedTip, warn: Warn
) -> list[Snapshot]:
    """Return the snapshots of a timeline, newest first; none if it does not exist."""
    from git_envhist.snapshots.notes import (  # loaded late: most snapshots have no old notes
        add_fetched_notes,
        add_local_notes,
    )

    fetched = FetchedStore.of(repository)
    if is_fetched(name):
        pushed = _read_pushed(repository, fetched, name, limit, pushed_tip, warn)
        if pushed or not fetched.exists:
            return pushed
        found = _read_fetched(fetched, name, limit, warn)
        return add_fetched_notes(fetched, add_local_notes(repository.git, fetched, found))
    ref = TIMELINE_REFS + name
    try:
        found = list(read_chain(repository.git, ref, limit=limit, warn=warn))
        if any(one.id != one.commit for one in found):
            from git_envhist.snapshots.notes import (
                with_notes_of_other_writers,  # loaded late: only a rewritten timeline has old notes
            )

            found = with_notes_of_other_writers(repository.git, found, name)
    except GitFailed:
        # Only after a failure a process is started to see whether the timeline exists.
        if repository.resolve_ref(ref) is None:
            if not os.path.isfile(os.path.join(repository.common_dir, ref)):
                return []
            # A first capture may have created the ref after `resolve_ref`.
            if repository.resolve_ref(ref) is None:
                raise Damaged(
                    f"'{ref}' points to no commit", hint="repair it: git envlog fsck --repair"
                ) from None
        # The first snapshot may have been published after the failure.
        found = list(read_chain(repository.git, ref, limit=limit, warn=warn))
    if fetched.exists:
        found = add_fetched_notes(fetched, found)
    # The author of a commit may have written any timeline's name into it; these snapshots were not fetched.
    return [replace(one, timeline=name) if is_fetched(one.timeline) else one for one in found]


def _read_pushed(
    repository: Repository,
    fetched: FetchedStore,
    name: str,
    limit: int | None,
    pushed_tip: PushedTip,
    warn: Warn,
) -> list[Snapshot]:
    """Return the snapshots that a push left at a remote, newest first: a fetch skips what is ours already."""
    if fetched.exists and name in fetched.timelines():
        return []
    with suppress(UsageError, GitFailed):
        tip = pushed_tip(*split_name(name))
        return list(read_chain(repository.git, tip, limit=limit, warn=warn)) if tip else []
    return []


def _read_fetched(fetched: FetchedStore, name: str, limit: int | None, warn: Warn) -> list[Snapshot]:
    try:
        return list(fetched.read(name, limit, warn))
    except GitFailed:
        if fetched.git.ask("cat-file", "-e", f"{REMOTES}{name}^{{commit}}").status == 0:
            raise
        # A broken fetched timeline must not hide the other ones.
        warn(f"'{name}' points to no commit: fetch or import it again")
        return []


def list_timelines(repository: Repository, own: str | None) -> tuple[str, ...]:
    """Return the names of all timelines: this working tree's own first, fetched ones last."""
    names = sorted(ref.removeprefix(TIMELINE_REFS) for ref in repository.list_refs(TIMELINE_REFS))
    fetched = FetchedStore.of(repository).timelines()
    return (*sorted(names, key=lambda name: name != own), *fetched)


def newest_at(repository: Repository) -> dict[str, float] | None:
    """Return the time of each timeline's tip, ours first; None if git cannot list all of them."""
    fetched = FetchedStore.of(repository)
    found: dict[str, float] = {}
    for git, place in ((repository.git, TIMELINE_REFS), (fetched.git, REMOTES))[: 1 + fetched.exists]:
        listed = git.try_run("for-each-ref", "--format=%(committerdate:unix) %(refname)", place)
        if listed.status != 0:
            return None
        for line in listed.out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            at, _, ref = line.partition(" ")
            if not at.isdigit():
                return None
            found[ref.removeprefix(place)] = float(at)
    return found


def newest_snapshots(
    tips: Mapping[str, float], read: Callable[[str, int], Sequence[Snapshot]], limit: int
) -> list[Snapshot]:
    """Return the newest snapshots of all timelines, each from the first timeline in `tips` that has it.

    `tips`: the time of each timeline's newest snapshot; a timeline with a tip that is too old is not read.
    """
    lines: dict[str, Sequence[Snapshot]] = {}
    newest: list[float] = []
    known: set[str] = set()
    for name in sorted(tips, key=lambda name: tips[name], reverse=True):
        if limit <= len(newest) and (not limit or tips[name] < newest[limit - 1]):
            break
        lines[name] = read(name, limit)
        newest += [one.at.timestamp() for one in lines[name] if one.id not in known]
        newest = sorted(newest, reverse=True)[:limit]
        known.update(one.id for one in lines[name])
    found: dict[str, Snapshot] = {}
    for name in tips:
        for one in lines.get(name, ()):
            found.setdefault(one.id, one)
    return sorted(found.values(), key=lambda one: one.at, reverse=True)[:limit]


def judge_verdicts(found: Sequence[Snapshot], keys: Callable[[], KeyRing]) -> list[Snapshot]:
    """Return the snapshots, with each check result that none of the user's keys signed marked as unsigned."""
    if not any(one.verdicts for one in found):
        return list(found)
    from git_envhist.snapshots.message import with_judged_verdicts  # loaded late: keeps a capture fast

    return [with_judged_verdicts(one, keys().get) if one.verdicts else one for one in found]


def read_catalog(
    own: str,
    list_names: Callable[[], Sequence[str]],
    log: Callable[[int | None, str | None], Sequence[Snapshot]],
    git: Git,
    has_remote: bool,
) -> Catalog:
    """Return everything that a revision can refer to."""
    others = OtherTimelines(
        lambda: [name for name in list_names() if name != own], lambda name: log(None, name)
    )
    dropped = DroppedIds(git)
    own_timeline = Timeline.of(own, log(None, own or None))
    return Catalog(own_timeline, others, GitCommits(git), PathMatcher(git, own), dropped, has_remote)


class PathMatcher:
    """Return whether a text is a path that exists, or existed in the newest snapshot."""

    def __init__(self, git: Git, timeline: str) -> None:
        self._git = git
        self._timeline = timeline

    def __call__(self, text: str) -> bool:
        return os.path.lexists(text) or self._existed(text)

    def _existed(self, text: str) -> bool:
        # A user who wants to restore a deleted path types a path that does not exist.
        if self._git.work_tree is None or not self._timeline:
            return False
        try:
            path = path_below(os.fsencode(self._git.work_tree), os.getcwdb(), os.fsencode(text))
        except (UsageError, OSError, ValueError):
            return False
        place = os.fsencode(TIMELINE_REFS + self._timeline) + b":" + path
        return bool(path) and self._git.try_run("cat-file", "-e", place).status == 0


def path_below(root: bytes, directory: bytes, typed: bytes) -> EnvPath:
    """Return the path from the top for a path typed in a directory; raise `UsageError` if it is outside.

    Links lead into the environment but are not followed inside of it: a snapshot may have a directory where the working
    tree has a link.
    """
    top = os.path.realpath(root)
    whole = os.path.normpath(os.path.join(os.path.realpath(directory), typed))
    place, rest = b"/", whole.strip(b"/")
    while not _is_below(place, top):
        if not rest:
            raise UsageError(
                f"outside the environment: '{os.fsdecode(typed)}'", hint=f"its top is '{os.fsdecode(root)}'"
            )
        name, _, rest = rest.partition(b"/")
        place = os.path.realpath(os.path.join(place, name))
    return EnvPath(os.path.join(place[len(top) :], rest).strip(b"/"))


def _is_below(place: bytes, top: bytes) -> bool:
    return place == top or place.startswith(top.rstrip(b"/") + b"/")


LISTED = rb"^commit [0-9a-f]+\n([0-9a-f]+)\0(.*?)\0"
"""Compiled when it is used: few revisions are ids of dropped snapshots."""


class DroppedIds:
    """Ids of dropped snapshots in the trash."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def __call__(self, prefix: str) -> str | None:
        """Return the id that begins with some digits; None if there is none or more than one."""
        from git_envhist.snapshots.message import (
            read_message,  # loaded late: few revisions are dropped snapshots
        )

        refs = self._git.try_run("for-each-ref", "--format=%(refname)", TRASH_REFS).out.split()
        if not refs:
            return None
        listed = self._git.try_run("rev-list", "--stdin", "--format=%H%x00%B%x00", stdin=b"\n".join(refs))
        found = set()
        for commit, message in re.findall(LISTED, listed.out, re.DOTALL | re.MULTILINE):
            with suppress(Damaged):
                found.add(read_message(message).was or commit.decode("ascii"))
        matching = {one for one in found if one.startswith(prefix.lower())}
        return matching.pop() if len(matching) == 1 else None


HEX_ID = r"[0-9a-fA-F]{7,64}"


def refuse_newer(git: Git, text: str) -> None:
    """Raise `NewerFormat` if a text is the id of a snapshot that a later version of this program wrote."""
    from git_envhist.snapshots.message import NewerFormat, read_message  # loaded late: only an error needs it

    if not re.fullmatch(HEX_ID, text):
        return
    found = git.try_run("cat-file", "commit", text)
    try:
        read_message(found.out.partition(b"\n\n")[2])
    except NewerFormat:
        raise
    except Damaged:
        return


class GitCommits:
    """Resolve git's revisions to code commits."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def commit_of(self, text: str) -> str | None:
        """Return the commit that git resolves a text to; None if there is none."""
        if "@{" not in text:
            return self._one_id(text + "^{commit}")
        # git reads `@{10:27}..^{commit}` and `@{10:27}:file^{commit}` as times, all of it up to the last brace.
        found = self._one_id(text)
        return None if found is None else self._one_id(found + "^{commit}")

    def _one_id(self, text: str) -> str | None:
        done = self._git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", text)
        return done.out.decode("ascii", "replace").strip() if done.status == 0 else None


class OtherTimelines(Mapping[str, Timeline]):
    """Timelines by name; the list of names and each timeline are read when they are asked for."""

    def __init__(
        self, list_names: Callable[[], Sequence[str]], read: Callable[[str], Sequence[Snapshot]]
    ) -> None:
        self._list_names = list_names
        self._read = read
        self._known: dict[str, Timeline] = {}

    @once
    def _names(self) -> tuple[str, ...]:
        return tuple(self._list_names())

    def __getitem__(self, name: str) -> Timeline:
        if name not in self._names and not is_fetched(name):
            raise KeyError(name)
        if name not in self._known:
            # An own timeline as a push left it has a name with the remote, and is in no list.
            self._known[name] = Timeline.of(name, self._read(name))
        if name not in self._names and not self._known[name].snapshots:
            raise KeyError(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
