"""Two snapshots side by side: what git sees differ in their trees, and what only the manifest knows.

One `git diff-tree` gives all that differs in the environment; meanwhile the shards of the manifest are found in packs
of captures. Equal subtrees are skipped. What counts as a change is told in `history/diff.py`. Paths are true names; two
kinds stand beside the environment's own:

- `<name>://<path>`: a path of the further root `<name>` (no path of the environment has an empty component);
- `<path>/.git`: the `.git` of a nested repository, whatever differs in it, as one directory whose `oid` is its tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from git_envhist.errors import Damaged, GitFailed
from git_envhist.model import Change, EntryKind, EnvPath, ObjectId
from git_envhist.store.git import Git
from git_envhist.store.layout import MISSING, RESERVED
from git_envhist.store.metadata import MetadataPair, read_differences
from git_envhist.store.objects import CatFile
from git_envhist.store.pathspecs import matching
from git_envhist.store.rows import DiffRows, RenameRow, empty_tree, is_modified, parse_rows, read_renames
from git_envhist.store.shardlines import ShardDiff, settled_shards
from git_envhist.store.sides import environment_path, join_changes
from git_envhist.store.treediff import TreeDiffProcess
from git_envhist.store.trees import decode_tree

if TYPE_CHECKING:
    from git_envhist.store.ownfirst import OwnFirst


def compare(
    git: Git,
    before: str | None,
    after: str,
    *,
    pathspecs: Sequence[bytes] = (),
    renames: int | None = None,
    metadata: bool = True,
    brief: bool = False,
) -> tuple[Change, ...]:
    """The changes between two tree-ishes in the order of their paths; `before` None: everything is added.

    `pathspecs` are spelled as from the top (`pathspecs.anchored`); `renames` is the least similarity, in percent;
    without `metadata` the manifest is not read, and only what git's tree shows is seen; with `brief` no more is read
    of a file whose bytes differ: its modes are those that git's imply, and it is not known how it is stored.
    """
    old = before if before is not None else empty_tree(git, after)
    try:
        with _compare_trees(git, old, after, metadata=metadata, brief=brief) as (rows, reader):
            changes = find_changes(reader, rows, after, metadata=metadata, brief=brief)
    except (Damaged, GitFailed) as error:
        from git_envhist.store.whereabouts import (
            with_damaged_path,  # loaded late: only what is damaged needs it
        )

        raise with_damaged_path(git, (old, after), error) from error
    if pathspecs:
        changes = _limit(git, changes, pathspecs)
    if renames is not None:
        changes = _pair_renames(changes, read_renames(git, old, after, pathspecs, renames))
    return tuple(changes[path] for path in sorted(changes))


def find_changes(
    reader: CatFile | OwnFirst,
    rows: DiffRows,
    after: str,
    *,
    metadata: bool = True,
    brief: bool = False,
) -> dict[EnvPath, Change]:
    """The changes that rows of git's diff and the shards among them tell, by their paths; `after`: the later side."""
    known = _read_metadata(reader, rows, after, brief) if metadata else {}
    tree = TreeReader(reader, after, rows.id_length)
    changes = join_changes(rows.contents, rows.nested, known, tree.look_up)
    if any(change.after is None for change in changes.values()):
        changes = _without_unseen(changes, _read_missing(reader, tree))
    return changes


class TreeReader:
    """Finds what stands at stored paths of one tree, each directory read once; any name will do."""

    def __init__(self, reader: CatFile | OwnFirst, tree_ish: str, id_length: int) -> None:
        self._reader = reader
        self._tree_ish = tree_ish
        self._id_length = id_length
        self._directories: dict[bytes, dict[bytes, bytes]] = {}

    def look_up(self, path: bytes) -> ObjectId | None:
        """The object at a path; None where nothing stands there."""
        directory, _, name = path.rpartition(b"/")
        oid = self._entries(directory).get(name)
        return None if oid is None else ObjectId(oid)

    def _entries(self, directory: bytes) -> dict[bytes, bytes]:
        known = self._directories.get(directory)
        if known is None:
            known = self._directories[directory] = self._read(directory)
        return known

    def _read(self, directory: bytes) -> dict[bytes, bytes]:
        if directory:
            oid = self.look_up(directory)
            answer = self._reader.read(oid.hex()) if oid is not None else None
        else:
            answer = self._reader.read(self._tree_ish + "^{tree}")
        if answer is None or answer[0] != "tree":
            return {}
        return {name: oid for name, _, oid in decode_tree(answer[1], self._id_length, gitlinks=True)}


@contextmanager
def _compare_trees(
    git: Git, before: str, after: str, *, metadata: bool, brief: bool
) -> Iterator[tuple[DiffRows, CatFile | OwnFirst]]:
    """All rows; and who reads what they name."""
    with CatFile(git) as others, closing(TreeDiffProcess(git, before, after, shards=False)) as running:
        from git_envhist.store.ownfirst import OwnFirst  # loaded late: while git compares
        from git_envhist.store.shardpairs import (  # loaded late: likewise
            differing_manifest_lines,
            differing_shards,
        )

        with closing(OwnFirst(git, others, after)) as own:
            shards = differing_shards(own, before, after) if metadata else []
            lines = differing_manifest_lines(own, shards) if shards and brief else []
            rows = parse_rows(running.finish())
            if shards is not None:
                yield _without_settled(rows._replace(shards=shards), lines), own
                return
        others.start()
        with closing(TreeDiffProcess(git, before, after, shards=True)) as running:
            shards = parse_rows(running.finish()).shards
        yield rows._replace(shards=shards), others


def _without_settled(rows: DiffRows, lines: Sequence[ShardDiff]) -> DiffRows:
    settled = settled_shards(lines, *_certain(rows)) if lines else set()
    return rows._replace(shards=[row for row in rows.shards if (row.old_oid, row.new_oid) not in settled])


def _certain(rows: DiffRows) -> tuple[set[bytes], list[bytes]]:
    """The stored paths that were modified, whatever the manifest says, and all others that differ."""
    certain: set[bytes] = set()
    others: list[bytes] = []
    for path, (old_mode, new_mode, _, _) in rows.contents.items():
        (certain.add if is_modified(old_mode, new_mode) else others.append)(path)
    return certain, others


def _read_metadata(
    reader: CatFile | OwnFirst, rows: DiffRows, after: str, brief: bool
) -> Mapping[bytes, MetadataPair]:
    shards = [(row.before, row.after) for row in rows.shards]
    if not brief:
        return read_differences(reader, shards, rows.contents, after)
    certain, others = _certain(rows)
    return read_differences(reader, shards, others, after, certain)


def _read_missing(reader: CatFile | OwnFirst, tree: TreeReader) -> frozenset[bytes]:
    """The paths that are not in the later snapshot because they could not be captured."""
    from git_envhist.model import MissingReason  # loaded late: mostly nothing went
    from git_envhist.store.listings import read_missing  # loaded late: likewise

    oid = tree.look_up(RESERVED + b"/" + MISSING)
    answer = reader.read(oid.hex()) if oid is not None else None
    missing = read_missing(answer[1]) if answer is not None else ()
    return frozenset(item.path for item in missing if item.why is not MissingReason.ATTRIBUTES)


def _without_unseen(changes: dict[EnvPath, Change], missing: frozenset[bytes]) -> dict[EnvPath, Change]:
    # What could not be looked at is not gone: nothing is known of it.
    if not missing:
        return changes
    return {path: change for path, change in changes.items() if change.after or not _lies_in(path, missing)}


def _lies_in(path: bytes, places: frozenset[bytes]) -> bool:
    while path not in places:
        path, slash, _ = path.rpartition(b"/")
        if not slash:
            return path in places
    return True


def _limit(git: Git, changes: Mapping[EnvPath, Change], pathspecs: Sequence[bytes]) -> dict[EnvPath, Change]:
    # The top has no name that a pattern could match.
    paths = [path for path in changes if path]
    directories = [path for path in paths if is_directory(changes[path])]
    matched = matching(git, paths, directories, pathspecs)
    return {path: changes[path] for path in paths if path in matched}


def is_directory(change: Change) -> bool:
    """Whether either side is one: so a pattern with a slash at its end means it."""
    return any(
        side is not None and side.kind is EntryKind.DIRECTORY for side in (change.before, change.after)
    )


def _pair_renames(changes: Mapping[EnvPath, Change], renames: Iterable[RenameRow]) -> dict[EnvPath, Change]:
    paired = dict(changes)
    for rename in renames:
        old, new = environment_path(rename.before), environment_path(rename.after)
        gone, come = paired.get(old), paired.get(new)
        # git compares stored names with the pathspecs, and knows no file without bytes: only what we have is paired.
        if gone is None or come is None or gone.before is None or come.after is None:
            continue
        if gone.after is None and come.before is None:
            mode = ("mode",) if gone.before.mode != come.after.mode else ()
            del paired[old]
            paired[new] = Change(gone.before, come.after, rename.similarity, mode)
    return paired
