"""An export: chosen moments, whole, in one file; looked through before it is written, as what a push sends is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.history.ranges import resolve_range, snapshots_in_range
from git_envhist.history.revisions import Now
from git_envhist.history.timeline import Catalog
from git_envhist.model import Snapshot
from git_envhist.model.sharing import ExportResult
from git_envhist.sharing.outgoing import is_allowed, scan_outgoing
from git_envhist.sharing.refusals import TokensFound
from git_envhist.sharing.wrapping import recipients_of, wrapped_for
from git_envhist.store.archive import FileExists, write_archive
from git_envhist.store.bundles import make_repository, refs_of, workplace, write_bundle
from git_envhist.store.chosen import SelectedSnapshots, build_selected_chain
from git_envhist.store.fetched import FetchedStore, is_fetched, split_name
from git_envhist.store.git import Git
from git_envhist.store.keys import KeyRing
from git_envhist.store.objects import CatFile
from git_envhist.store.packs import PackWriter
from git_envhist.store.remoteload import OutgoingObject, objects_to_send
from git_envhist.store.remoterefs import HEADS, NOTES
from git_envhist.store.repository import Repository
from git_envhist.values import dataclass

PLACE = "export"
LARGEST = 1 << 30
"""Nothing larger is looked into: captures cut what is."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How an export is to be made."""

    force: bool = False
    """Write over a file that is there."""
    allow: tuple[bytes, ...] = ()
    """Paths that may leave though a token stands there."""


def choose(words: Sequence[str], world: Catalog, now: datetime) -> list[Snapshot]:
    """The moments that revisions and ranges mean, each once; nothing said: all of this working tree's timeline."""
    found = {} if words else {snapshot.id: snapshot for snapshot in world.own.snapshots}
    for word in words:
        span = resolve_range(word, world, now)
        if isinstance(span.end, Now):
            raise UsageError("what is here now is no moment yet", hint="git envlog capture, and then @")
        here = (span.end.snapshot,) if span.start is None else snapshots_in_range(span, world.own)
        found.update({snapshot.id: snapshot for snapshot in here})
    if not found:
        raise SnapshotNotFound(" ".join(words) or "@", hint="'git envlog --all' lists what there is")
    return list(found.values())


def export(
    repository: Repository,
    path: str,
    chosen: Iterable[Snapshot],
    world: Catalog,
    ring: KeyRing,
    identity: bytes,
    wish: ExportOptions,
    waiting: Callable[[], None] | None = None,
) -> ExportResult:
    """Write chosen moments, all of whose contents are here, with their notes and names into a file."""
    if not wish.force and os.path.lexists(path):
        raise FileExists(path)
    lines = _lines(chosen, world)
    fetched = FetchedStore.of(repository)
    alternates = [repository.objects_dir, *([fetched.objects_dir] if fetched.is_there else [])]
    with workplace(repository.common_state, PLACE, waiting) as work:
        git = make_repository(os.path.join(work, "export.git"), repository.object_format, alternates)
        taken = _chains(git, repository, lines, ring, identity)
        leaving = _leaving(git, taken)
        look = scan_outgoing(git, leaving, LARGEST)
        tokens = [token for token in look.tokens if not is_allowed(token.path, wish.allow)]
        if tokens:
            raise TokensFound(tokens, "written")
        bundle = os.path.join(work, "history.bundle")
        write_bundle(git, bundle, taken)
        size = write_archive(path, bundle, force=wish.force)
    told = tuple((one.timeline, one.snapshots) for one in taken)
    return ExportResult(path, size, len(leaving), told, look)


def _lines(chosen: Iterable[Snapshot], world: Catalog) -> dict[str, tuple[Snapshot, ...]]:
    """The chosen moments of each timeline, oldest first, by the name that it has where it was written."""
    wanted: dict[str, set[str]] = {}
    for snapshot in chosen:
        wanted.setdefault(snapshot.timeline, set()).add(snapshot.commit)
    found: dict[str, tuple[Snapshot, ...]] = {}
    for name, commits in wanted.items():
        line = world.timeline(name)
        assert line is not None, "it was found there"
        short = split_name(name)[1] if is_fetched(name) else name
        if short in found:
            raise UsageError(
                f"two timelines would be called '{short}'", hint="export the one, and then the other"
            )
        found[short] = tuple(one for one in reversed(line.snapshots) if one.commit in commits)
    return found


def _chains(
    git: Git,
    repository: Repository,
    lines: dict[str, tuple[Snapshot, ...]],
    ring: KeyRing,
    identity: bytes,
) -> list[SelectedSnapshots]:
    place = os.path.join(git.git_dir, "objects", "pack")
    os.makedirs(place, exist_ok=True)
    form = repository.object_format
    own = wrapped_for(ring, recipients_of(ring)[0] or ())
    with PackWriter(place, form) as writer, CatFile(git) as reader:
        chains = [
            build_selected_chain(
                reader,
                writer,
                name,
                line,
                ring.get,
                identity=identity,
                object_format=form,
                beside={} if is_fetched(line[0].timeline) else own,
            )
            for name, line in lines.items()
        ]
        writer.finish()
    return chains


def _leaving(git: Git, chosen: Sequence[SelectedSnapshots]) -> list[OutgoingObject]:
    refs = refs_of(chosen)
    heads = [oid for ref, oid in refs.items() if ref.startswith(HEADS)]
    notes = [oid for ref, oid in refs.items() if ref.startswith(NOTES)]
    return objects_to_send(git, heads, notes, (), {})
