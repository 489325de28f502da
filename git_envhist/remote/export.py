"""An import: what a file of an export holds comes in beside ours, checked whole before anything of it is used.

It is treated as a fetch from somebody nobody knows: into the repository of what came from elsewhere, under a name of
its own, and what no key of ours signed is a claim. What stands there already is never written over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from git_envhist.errors import Damaged, Refused, SnapshotNotFound, UsageError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.git.repository import SYNCED, Repository
from git_envhist.history.resolve import resolve_range, snapshots_in_range
from git_envhist.history.revisions import WorkingTree
from git_envhist.history.timeline import Catalog
from git_envhist.lazy import dataclass
from git_envhist.model import Snapshot
from git_envhist.model.storage import ExportResult, FetchOutcome, ImportResult
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.remote.bundle import (
    CheckedBundle,
    FileExists,
    make_repository,
    publish,
    read_archive,
    refs_of,
    take_bundle,
    workplace,
    write_archive,
    write_bundle,
)
from git_envhist.remote.push import TokensFound
from git_envhist.remote.remotes import NAME, NOTES, REMOTEREFS_HEADS, last
from git_envhist.remote.selection import SelectedSnapshots, build_selected_chain
from git_envhist.remote.upload import NOBODY, OutgoingObject, is_allowed, objects_to_send, scan_outgoing
from git_envhist.remote.wrapped_keys import recipients_of, wrapped_for
from git_envhist.secrets.keys import KeyRing
from git_envhist.snapshots.fetched import FETCHED_NOTES, REMOTES, FetchedStore, is_fetched, split_name
from git_envhist.snapshots.log import Warn, read_chain

# An export: chosen moments, whole, in one file; looked through before it is written, as what a push sends is.

EXPORT_DIRECTORY = "export"
MAX_SIZE = 1 << 30
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
        if isinstance(span.end, WorkingTree):
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
    alternates = [repository.objects_dir, *([fetched.objects_dir] if fetched.exists else [])]
    with workplace(repository.common_state, EXPORT_DIRECTORY, waiting) as work:
        git = make_repository(os.path.join(work, "export.git"), repository.object_format, alternates)
        taken = _chains(git, repository, lines, ring, identity)
        leaving = _leaving(git, taken)
        look = scan_outgoing(git, leaving, MAX_SIZE)
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
    heads = [oid for ref, oid in refs.items() if ref.startswith(REMOTEREFS_HEADS)]
    notes = [oid for ref, oid in refs.items() if ref.startswith(NOTES)]
    return objects_to_send(git, heads, notes, (), {})


PLACE = "import"
ENDINGS = re.compile(r"(\.envhist)?(\.tar)?(\.zst)?\Z")
MAX_NAMES = 1000


class NameTaken(Refused):
    """Something else goes by the name under which an import was to stand."""

    code = "name-taken"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"'{name}' {why}", hint="git envlog import --as <another name> <file>")


def import_archive(
    repository: Repository, path: str, name: str | None, tell: Warn, waiting: Callable[[], None] | None = None
) -> ImportResult:
    """Bring the timelines of a file in beside ours, as `<name>/<timeline>`; the usual name is the file's."""
    fetched = FetchedStore.of(repository)
    if name is not None:
        _refuse_remote(repository, fetched, name)
    with read_archive(path) as bundle, workplace(repository.common_state, PLACE, waiting) as work:
        objects = os.path.join(work, "objects")
        fetched.ensure()
        taken = take_bundle(bundle, fetched.path, objects, repository.object_format)
        counts = {timeline: _count(taken, timeline, tell) for timeline in taken.heads}
        with fetched.lock_for_receiving(waiting):
            chosen = name or _free_name(repository, fetched, path, taken)
            moves = _moves(fetched, chosen, taken)
            before = fetched.packs()
            publish(objects, fetched.objects_dir)
            fetched.add_checked_packs(fetched.packs() - before)
            _put(fetched, chosen, taken)
    told = tuple((f"{chosen}/{timeline}", moves[timeline], counts[timeline]) for timeline in sorted(counts))
    return ImportResult(path, chosen, told)


def _count(taken: CheckedBundle, timeline: str, tell: Warn) -> int:
    """How many moments there are; each is read, and what cannot be is told."""
    count = sum(1 for _ in read_chain(taken.git, taken.heads[timeline], notes=False, warn=tell))
    if not count:
        raise Damaged(f"'{timeline}' holds no moment that can be read: nothing was taken in")
    return count


def _free_name(repository: Repository, fetched: FetchedStore, path: str, taken: CheckedBundle) -> str:
    """The file's name, or with a number behind: under it stands nothing, or what this only adds to."""
    stem = ENDINGS.sub("", os.path.basename(path))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.").replace("..", "-")[:60] or "import"
    plain = plain if NAME.fullmatch(plain) and not plain.endswith(".lock") else "import"
    for number in range(1, MAX_NAMES):
        name = plain if number == 1 else f"{plain}-{number}"
        if not _is_remote(repository, fetched, name) and _adds_only(fetched, name, taken):
            return name
    raise NameTaken(plain, "and all names like it are taken")


def _adds_only(fetched: FetchedStore, name: str, taken: CheckedBundle) -> bool:
    there = _there(fetched, name)
    return all(
        there.get(line) in (None, oid) or _leads_on(fetched, taken, there[line], oid)
        for line, oid in taken.heads.items()
    )


def _moves(fetched: FetchedStore, name: str, taken: CheckedBundle) -> Mapping[str, FetchOutcome]:
    if not _adds_only(fetched, name, taken):
        raise NameTaken(name, "holds other moments of the same timeline")
    there = _there(fetched, name)
    return {line: _arrival(there.get(line), oid) for line, oid in taken.heads.items()}


def _arrival(before: str | None, after: str) -> FetchOutcome:
    if before is None:
        return FetchOutcome.NEW
    return FetchOutcome.SAME if before == after else FetchOutcome.UPDATED


def _there(fetched: FetchedStore, name: str) -> dict[str, str]:
    place = f"{REMOTES}{name}/"
    return {ref.removeprefix(place): oid for ref, oid in fetched.refs(place).items()}


def _leads_on(fetched: FetchedStore, taken: CheckedBundle, old: str, new: str) -> bool:
    both = Git(fetched.path, None, alternates=(os.fsdecode(taken.git.environment[b"GIT_OBJECT_DIRECTORY"]),))
    return both.ask("merge-base", "--is-ancestor", old, new).status == 0


def _put(fetched: FetchedStore, name: str, taken: CheckedBundle) -> None:
    fetched.mark_imported(name)
    lines = [f"update {REMOTES}{name}/{line} {oid}\n" for line, oid in taken.heads.items()]
    fetched.git.run(*SYNCED, "update-ref", "--no-deref", "--stdin", stdin="".join(lines).encode("ascii"))
    for line, oid in taken.notes.items():
        _join_notes(fetched, f"{FETCHED_NOTES}{name}/{line}", oid)
    # The file may be gone tomorrow.
    fetched.sync(
        [f"{REMOTES}{name}/{line}" for line in taken.heads]
        + [f"{FETCHED_NOTES}{name}/{line}" for line in taken.notes]
    )


def _join_notes(fetched: FetchedStore, ref: str, new: str) -> None:
    """What is said now, and what was said in an earlier file: records are lines, each of them stays once."""
    if ref not in fetched.refs(ref):
        fetched.git.run(*SYNCED, "update-ref", "--no-deref", ref, new)
        return
    came = f"{FETCHED_NOTES}import-{os.urandom(6).hex()}"
    fetched.git.run("update-ref", "--no-deref", came, new)
    words = (*SYNCED, "notes", f"--ref={ref}", "merge", "--quiet", "--strategy=cat_sort_uniq", came)
    try:
        fetched.git.run(*words, environment=NOBODY)
    finally:
        fetched.git.run("update-ref", "-d", came)


def _refuse_remote(repository: Repository, fetched: FetchedStore, name: str) -> None:
    if not NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
        raise UsageError(f"not a name: '{name}'", hint="letters, digits, dots and dashes serve")
    if _is_remote(repository, fetched, name):
        raise NameTaken(name, "is a remote")


def _is_remote(repository: Repository, fetched: FetchedStore, name: str) -> bool:
    return last(repository.read_config(), f"remote.{name}.url") is not None or fetched.has_remote(name)
