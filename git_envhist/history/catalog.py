"""What a revision can speak of besides this working tree's own timeline: the other ones, and git's code commits."""

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
from git_envhist.snapshots.fetched import REMOTES, FetchedStore, is_fetched, split_name
from git_envhist.snapshots.log import Warn, read_chain

if TYPE_CHECKING:
    from git_envhist.secrets.keys import KeyRing


def as_sequence(said: object) -> tuple[Any, ...]:
    """What somebody says, also one word alone: to Python that is a sequence of letters, and to nobody else."""
    return (said,) if isinstance(said, str | bytes | os.PathLike) else tuple(cast("Iterable[Any]", said))


def refuse_unknown(verb: str, said: Iterable[str], known: Iterable[str]) -> None:
    """A word that means nothing is refused, as Python does: passed over it would do what nobody asked for."""
    unknown = sorted(set(said).difference(known))
    if unknown:
        raise TypeError(f"{verb}() got an unexpected keyword argument '{unknown[0]}'")


def read_timeline(repository: Repository, name: str, limit: int | None, tell: Warn) -> list[Snapshot]:
    """The snapshots of a timeline, newest first; none where there is no such timeline."""
    from git_envhist.snapshots.notes import (  # loaded late: most snapshots have no old notes
        add_fetched_notes,
        add_local_notes,
    )

    fetched = FetchedStore.of(repository)
    if is_fetched(name):
        pushed = _read_pushed(repository, fetched, name, limit, tell)
        if pushed or not fetched.exists:
            return pushed
        found = _read_fetched(fetched, name, limit, tell)
        return add_fetched_notes(fetched, add_local_notes(repository.git, fetched, found))
    ref = TIMELINE_REFS + name
    try:
        found = list(read_chain(repository.git, ref, limit=limit, warn=tell))
        if any(one.id != one.commit for one in found):
            from git_envhist.snapshots.notes import with_old_notes

            found = with_old_notes(repository.git, found, name)
    except GitFailed:
        # Only now it is worth a process to know whether there is a timeline at all.
        if repository.resolve_ref(ref) is None:
            if not os.path.isfile(os.path.join(repository.common_dir, ref)):
                return []
            # A first capture may have made the ref between the two questions.
            if repository.resolve_ref(ref) is None:
                raise Damaged(
                    f"'{ref}' leads nowhere", hint="mend what can be mended: git envlog fsck --repair"
                ) from None
        # Its first snapshot may have come between the two.
        found = list(read_chain(repository.git, ref, limit=limit, warn=tell))
    if fetched.exists:
        found = add_fetched_notes(fetched, found)
    # What a commit says of its timeline is its author's word: none that stands here was fetched.
    return [replace(one, timeline=name) if is_fetched(one.timeline) else one for one in found]


def _read_pushed(
    repository: Repository, fetched: FetchedStore, name: str, limit: int | None, tell: Warn
) -> list[Snapshot]:
    """Return the snapshots that a push left at a remote, newest first: a fetch skips what is ours already."""
    if fetched.exists and name in fetched.timelines():
        return []
    from git_envhist.remote.remotes import pushed_tip  # loaded late: few revisions name a remote

    with suppress(UsageError, GitFailed):
        tip = pushed_tip(repository, *split_name(name))
        return list(read_chain(repository.git, tip, limit=limit, warn=tell)) if tip else []
    return []


def _read_fetched(fetched: FetchedStore, name: str, limit: int | None, tell: Warn) -> list[Snapshot]:
    try:
        return list(fetched.read(name, limit, tell))
    except GitFailed:
        if fetched.git.ask("cat-file", "-e", f"{REMOTES}{name}^{{commit}}").status == 0:
            raise
        # It stands beside all others, and none of them is to be asked for in vain because of it.
        tell(f"'{name}' leads nowhere: fetch it again, or import it")
        return []


def list_timelines(repository: Repository, own: str | None) -> tuple[str, ...]:
    """The names of all timelines, this working tree's own first and those that were fetched last."""
    names = sorted(ref.removeprefix(TIMELINE_REFS) for ref in repository.list_refs(TIMELINE_REFS))
    fetched = FetchedStore.of(repository).timelines()
    return (*sorted(names, key=lambda name: name != own), *fetched)


def newest_at(repository: Repository) -> dict[str, float] | None:
    """When each timeline's tip was taken, ours first; None where git cannot say it of all of them."""
    fetched = FetchedStore.of(repository)
    found: dict[str, float] = {}
    for git, place in ((repository.git, TIMELINE_REFS), (fetched.git, REMOTES))[: 1 + fetched.exists]:
        told = git.try_run("for-each-ref", "--format=%(committerdate:unix) %(refname)", place)
        if told.status != 0:
            return None
        for line in told.out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            at, _, ref = line.partition(" ")
            if not at.isdigit():
                return None
            found[ref.removeprefix(place)] = float(at)
    return found


def newest_snapshots(
    tips: Mapping[str, float], read: Callable[[str, int], Sequence[Snapshot]], limit: int
) -> list[Snapshot]:
    """The newest of all timelines, each moment once and as the first of them tells it; read are only those that count.

    `tips`: when the newest of each was taken, and nothing on a timeline is newer than its tip.
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
    """The snapshots; of each verdict that no key here signed it is said whose claim it is."""
    if not any(one.verdicts for one in found):
        return list(found)
    from git_envhist.snapshots.message import with_judged_verdicts  # loaded late: keeps a capture fast

    return [with_judged_verdicts(one, keys().get) if one.verdicts else one for one in found]


def world_of(
    own: str,
    list_names: Callable[[], Sequence[str]],
    log: Callable[[int | None, str | None], Sequence[Snapshot]],
    git: Git,
    has_remote: bool,
) -> Catalog:
    """All that a revision can speak of."""
    others = OtherTimelines(
        lambda: [name for name in list_names() if name != own], lambda name: log(None, name)
    )
    dropped = DroppedIds(git)
    mine = Timeline.of(own, log(None, own or None))
    return Catalog(mine, others, GitCommits(git), PathMatcher(git, own), dropped, has_remote)


class PathMatcher:
    """Whether words are a path: one that stands here, or that stood here when the newest snapshot was taken."""

    def __init__(self, git: Git, timeline: str) -> None:
        self._git = git
        self._timeline = timeline

    def __call__(self, text: str) -> bool:
        return os.path.lexists(text) or self._stood_here(text)

    def _stood_here(self, text: str) -> bool:
        # What somebody wants back is gone: it is looked for where it was.
        if self._git.work_tree is None or not self._timeline:
            return False
        try:
            path = path_below(os.fsencode(self._git.work_tree), os.getcwdb(), os.fsencode(text))
        except (UsageError, OSError, ValueError):
            return False
        place = os.fsencode(TIMELINE_REFS + self._timeline) + b":" + path
        return bool(path) and self._git.try_run("cat-file", "-e", place).status == 0


def path_below(root: bytes, directory: bytes, typed: bytes) -> EnvPath:
    """The path below the top that words typed in some directory mean."""
    top = os.path.realpath(root)
    parent = os.path.realpath(os.path.join(directory, os.path.dirname(typed) or b"."))
    whole = os.path.normpath(os.path.join(parent, os.path.basename(typed)))
    if whole != top and not whole.startswith(top.rstrip(b"/") + b"/"):
        raise UsageError(
            f"outside the environment: '{os.fsdecode(typed)}'", hint=f"its top is '{os.fsdecode(root)}'"
        )
    return EnvPath(whole[len(top) :].lstrip(b"/"))


LISTED = rb"^commit [0-9a-f]+\n([0-9a-f]+)\0(.*?)\0"
"""Compiled where it is used: hardly anybody asks for what was let go."""


class DroppedIds:
    """The ids of what was let go, and can be brought back."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def __call__(self, prefix: str) -> str | None:
        """The one id that begins with these digits; None where there is none, or more than one."""
        from git_envhist.snapshots.message import read_message  # loaded late: hardly anybody asks for one

        refs = self._git.try_run("for-each-ref", "--format=%(refname)", TRASH_REFS).out.split()
        if not refs:
            return None
        told = self._git.try_run("rev-list", "--stdin", "--format=%H%x00%B%x00", stdin=b"\n".join(refs))
        found = set()
        for commit, message in re.findall(LISTED, told.out, re.DOTALL | re.MULTILINE):
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
    """git's own revisions."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def commit_of(self, text: str) -> str | None:
        """The commit that git resolves a text to; None where it knows none."""
        done = self._git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", text + "^{commit}")
        return done.out.decode("ascii", "replace").strip() if done.status == 0 else None


class OtherTimelines(Mapping[str, Timeline]):
    """Timelines by name, their names and each of them read when they are asked for."""

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
