"""What holds the space of a history: its moments, directories and classes, and what each of them alone would free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

from git_envhist.errors import Damaged
from git_envhist.history.classes import class_of, generated_in
from git_envhist.model import DiskUsage, Snapshot, SpaceUser
from git_envhist.store.ledger import ABOUT, LabelUsage, ObjectLabels, PackedSizes, Step
from git_envhist.store.names import true_path
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.reaching import NOT_OURS, reachable_objects
from git_envhist.store.repository import HEADS, TRASH, Repository
from git_envhist.store.staging import open_published
from git_envhist.upkeep.freeing import bytes_freed
from git_envhist.values import dataclass

DEPTH = 2
"""Directories are told down to here."""
TOP = b"."
IN, OUT = b"\0in", b"\0out"
CHOSEN = b"\0chosen"
GENERATED = (b"packages", b"built", b"cache")


@dataclass(frozen=True, slots=True)
class SnapshotSet:
    """The moments there are."""

    lines: Mapping[str, Sequence[Snapshot]]
    """By timeline."""
    in_trash: Sequence[str]
    """Commits."""


def measure(
    repository: Repository,
    moments: SnapshotSet,
    chosen: Sequence[Snapshot],
    paths: Sequence[bytes],
    tell: Callable[[str], None],
) -> DiskUsage:
    """What holds the space; `chosen`, `paths`: what these moments, these paths would free together."""
    with closing(
        open_published(repository.common_state, repository.pack_dir, repository.object_format)
    ) as own:
        sizes = PackedSizes.read(own.packs, repository.hash_length)
        tell("looking at what is yours")
        ours = reachable_objects(repository.git, sizes.of.__contains__, roots=NOT_OURS)
        count = _Count(repository, own, sizes, moments, frozenset(ours))
        tell("counting by moment")
        by_moment = count.by_moment()
        tell("counting by directory")
        by_directory, by_class = count.by(_directory), count.by(_class)
        together = count.together(chosen, paths) if chosen or paths else None
        files = [
            f"{path.removesuffix('.pack')}{suffix}" for path in own.paths for suffix in (".pack", ".idx")
        ]
        on_disk = sum(os.stat(path).st_size for path in files)
        return DiskUsage(
            on_disk,
            len(own.paths),
            sum(len(line) for line in moments.lines.values()),
            len(moments.in_trash),
            by_moment.pop(TRASH.encode(), LabelUsage()).frees,
            _moments(by_moment, moments),
            _rows(by_directory),
            _rows(by_class),
            together,
        )


class _Count:
    def __init__(
        self,
        repository: Repository,
        own: OwnPacks,
        sizes: PackedSizes,
        moments: SnapshotSet,
        kept: frozenset[bytes],
    ) -> None:
        self._repository = repository
        self._own = own
        self._sizes = sizes
        self._length = repository.hash_length
        self._moments = moments
        self._kept = kept

    def by_moment(self) -> dict[bytes, LabelUsage]:
        ledger = ObjectLabels(self._own, self._sizes, self._length)
        for snapshot in self._all():
            ledger.add(snapshot.commit, snapshot.commit.encode("ascii"))
        return self._finish(ledger, TRASH.encode())

    def by(self, step: Step) -> dict[bytes, LabelUsage]:
        ledger = ObjectLabels(self._own, self._sizes, self._length, step)
        for commit in (*(one.commit for one in self._all()), *self._moments.in_trash):
            ledger.add(commit, b"")
        ledger.keep(self._kept)
        return ledger.held()

    def together(self, chosen: Sequence[Snapshot], paths: Sequence[bytes]) -> int:
        """What moments would free, gone together; or paths, gone from these moments (from all, without any)."""
        everything = [*(one.commit for one in self._all()), *self._moments.in_trash]
        if paths:
            ledger = ObjectLabels(self._own, self._sizes, self._length, _inside(frozenset(paths)))
            for commit in everything:
                ledger.add(commit, b"")
            return self._freed(ledger, IN)
        commits = {one.commit for one in chosen}
        ledger = ObjectLabels(self._own, self._sizes, self._length)
        for commit in everything:
            ledger.add(commit, CHOSEN if commit in commits else OUT)
        return self._freed(ledger, CHOSEN)

    def _freed(self, ledger: ObjectLabels, label: bytes) -> int:
        ledger.keep(self._kept)
        estimate = ledger.held().get(label, LabelUsage()).frees
        return bytes_freed(self._repository, self._sizes, ledger.alone(label), estimate)

    def _all(self) -> Iterable[Snapshot]:
        return (one for line in self._moments.lines.values() for one in line)

    def _finish(self, ledger: ObjectLabels, trash: bytes) -> dict[bytes, LabelUsage]:
        for commit in self._moments.in_trash:
            ledger.add(commit, trash)
        ledger.keep(self._kept)
        return ledger.held()


def _directory(label: bytes, name: bytes, is_directory: bool) -> bytes:
    """Directories down to some depth; what stands at the top is told together."""
    if not is_directory or label.count(b"/") >= DEPTH - 1:
        return label or (TOP if not is_directory else name)
    return name if label in (b"", TOP) else label + b"/" + name


def _class(label: bytes, name: bytes, is_directory: bool) -> bytes:
    if label in GENERATED:
        return label
    if is_directory:
        sort, _ = generated_in(name)
        found = class_of(name)
        return sort.encode() or found.encode()
    return class_of(name).encode()


def _inside(paths: frozenset[bytes]) -> Step:
    """Whether something stands at one of some paths, or below: until that is known its path is its label."""

    def step(label: bytes, name: bytes, _is_directory: bool) -> bytes:
        if label in (IN, OUT):
            return label
        path = label + b"/" + name if label else name
        if path in paths:
            return IN
        return path if any(one.startswith(path + b"/") for one in paths) else OUT

    return step


def _moments(found: dict[bytes, LabelUsage], moments: SnapshotSet) -> tuple[SpaceUser, ...]:
    rows = []
    for timeline, line in moments.lines.items():
        for one in line:
            held = found.get(one.commit.encode("ascii"), LabelUsage())
            rows.append(SpaceUser(one.id, held.holds, held.frees, timeline.removeprefix(HEADS), one))
    return tuple(sorted(rows, key=lambda row: -row.frees))


def _rows(found: dict[bytes, LabelUsage]) -> tuple[SpaceUser, ...]:
    # What stands nowhere yet is the trees at the top: they are of no directory and of no class.
    about = [found[label] for label in (ABOUT, b"") if label in found]
    told = {label: held for label, held in found.items() if label not in (ABOUT, b"")}
    if about:
        told[ABOUT] = LabelUsage(sum(one.holds for one in about), sum(one.frees for one in about))
    rows = [SpaceUser(_shown(label), held.holds, held.frees) for label, held in told.items()]
    return tuple(sorted(rows, key=lambda row: (-row.holds, row.name)))


def _shown(label: bytes) -> str:
    if label == ABOUT:
        return "what is said of moments"
    try:
        return os.fsdecode(true_path(label)) if label != TOP else os.fsdecode(label)
    except Damaged:
        return os.fsdecode(label)
