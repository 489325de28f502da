"""Changes -> the few words that a person wants to read first: counts, and files folded by directory."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.history.classes import CACHE, generated_in
from git_envhist.history.diff import count
from git_envhist.model import TOP, Change, ChangeCount, ChangeKind, EnvPath, Snapshot
from git_envhist.values import dataclass, pattern

MINUS = pattern(r"(?<!\S)−(?= ?\S)")
HYPHEN = pattern(r"(?<!\S)-(?=[^\s-])")
MARKS = {
    ChangeKind.ADDED: "+",
    ChangeKind.MODIFIED: "~",
    ChangeKind.REMOVED: "−",
    ChangeKind.RENAMED: "→",
    ChangeKind.TYPE: "~",
}


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of a folded list: a file with its change, a directory with what changed below it, or the rest."""

    path: EnvPath
    count: ChangeCount
    change: Change | None = None
    """The one change, where the row names a file."""
    sort: str = ""
    """`cache` or `built`, where the row is a directory of what was generated."""
    places: int = 1
    """In how many directories of this name, where the row tells of several."""
    more: int = 0
    """How many files and directories the row stands for, where it is the rest; `path` is what they stand in."""


def describe_counts(changed: ChangeCount, first: bool = False) -> str:
    """`3,811 files` for a first snapshot, `+1,204 ~3 −1 files` for a later one."""
    if first:
        return _files(changed.added)
    if not changed.total:
        return "nothing changed"
    return f"{describe_marks(changed)} {'file' if changed.total == 1 else 'files'}"


def changes_phrase(snapshot: Snapshot) -> str:
    """What changed, as the snapshot itself tells it; at least how many files."""
    return snapshot.story or describe_counts(snapshot.changed, snapshot.parent is None)


def with_ascii_signs(text: str) -> str:
    """Return a summary with `-` in the place of the minus sign, for programs and files."""
    return MINUS.sub("-", text) if "−" in text else text


def with_minus_signs(text: str) -> str:
    """Return a summary that a program of ours printed as people read it."""
    return HYPHEN.sub("−", text)


def describe_marks(changed: ChangeCount) -> str:
    """`+3 ~11 −2`, without what is none."""
    marks = (("+", changed.added), ("~", changed.modified), ("−", changed.removed))
    return " ".join(f"{mark}{number:,}" for mark, number in marks if number)


def fold_by_directory(changes: Sequence[Change], limit: int = 12) -> tuple[SummaryRow, ...]:
    """At most `limit` rows that tell of all changes: directories first, then the files that stand for themselves.

    Folding begins below the directory that all changes have in common. There, what is small is told file by file
    as long as there is room, the smallest first; what is large is one row, however large it is. Caches are one row
    for each name, wherever they stand, and are never opened.
    """
    caches, others = _set_caches_apart(changes)
    if not others:
        return _cut([_cache_row(paths) for _, paths in sorted(caches.items())], b"", limit)
    common = _common_directory(others)
    groups = _group(others, len(common))
    opened = _choose_opened(groups, limit - len(caches))
    rows = [row for path, group in groups.items() for row in _rows(path, group, path in opened)]
    rows += [_cache_row(paths) for paths in caches.values()]
    return _cut(sorted(rows, key=_reading_order), common, limit)


def _files(number: int) -> str:
    return f"{number:,} {'file' if number == 1 else 'files'}"


def _set_caches_apart(
    changes: Sequence[Change],
) -> tuple[dict[bytes, dict[bytes, list[Change]]], list[Change]]:
    """What changed in caches, by the caches' names and then by their paths; and all other changes."""
    caches: dict[bytes, dict[bytes, list[Change]]] = {}
    others: list[Change] = []
    known: dict[bytes, tuple[str, bytes]] = {}
    for change in changes:
        directory = change.path[: max(change.path.rfind(b"/"), 0)]
        found = known.get(directory)
        if found is None:
            found = known[directory] = generated_in(directory)
        sort, place = found
        if sort != CACHE or change.kind is ChangeKind.RENAMED:
            others.append(change)
            continue
        caches.setdefault(place.rpartition(b"/")[2], {}).setdefault(place, []).append(change)
    return caches, others


def _cache_row(places: dict[bytes, list[Change]]) -> SummaryRow:
    """One row for all caches of a name."""
    first = next(iter(places))
    changed = count(change for group in places.values() for change in group)
    path = first if len(places) == 1 else first.rpartition(b"/")[2]
    return SummaryRow(EnvPath(path + b"/"), changed, sort=CACHE, places=len(places))


def _common_directory(changes: Sequence[Change]) -> bytes:
    """The deepest directory that holds all changes, with its slash; nothing where that is the top."""
    # Whatever stands between the least and the greatest path begins as both of them do.
    least, greatest = min(change.path for change in changes), max(change.path for change in changes)
    length = 0
    for one, other in zip(least, greatest, strict=False):
        if one != other:
            break
        length += 1
    common = least[: least.rfind(b"/", 0, length) + 1]
    _, built = generated_in(common[:-1])
    # What was built is one directory to its reader, wherever in it all of this happened.
    return built[: built.rfind(b"/") + 1] if built else common


def _group(changes: Sequence[Change], start: int) -> dict[bytes, list[Change]]:
    """The changes by the file or directory (told by its slash) that they stand in below the common one."""
    groups: dict[bytes, list[Change]] = {}
    for change in changes:
        slash = change.path.find(b"/", start)
        key = change.path if slash < 0 else change.path[: slash + 1]
        groups.setdefault(key, []).append(change)
    return groups


def _choose_opened(groups: dict[bytes, list[Change]], limit: int) -> frozenset[bytes]:
    """The groups whose files are named one by one: all of one file, and the smallest that there is room for."""
    opened = set()
    room = limit - len(groups)
    for path, group in sorted(groups.items(), key=lambda item: (len(item[1]), item[0])):
        room -= len(group) - 1
        if len(group) > 1 and room < 0:
            break
        opened.add(path)
    return frozenset(opened)


def _rows(path: bytes, group: list[Change], opened: bool) -> list[SummaryRow]:
    if opened:
        return [SummaryRow(change.path, count([change]), change) for change in group]
    return [SummaryRow(EnvPath(path), count(group), sort=generated_in(path.rstrip(b"/"))[0])]


def _reading_order(row: SummaryRow) -> tuple[bool, bytes]:
    return row.change is not None, row.path


def _cut(rows: list[SummaryRow], common: bytes, limit: int) -> tuple[SummaryRow, ...]:
    """The rows that tell most, in their order, and one for the rest of them."""
    if len(rows) <= limit:
        return tuple(rows)
    by_weight = sorted(range(len(rows)), key=lambda place: (-rows[place].count.total, place))
    kept = sorted(by_weight[: max(limit - 1, 0)])
    rest = [rows[place].count for place in by_weight[len(kept) :]]
    return (*(rows[place] for place in kept), SummaryRow(EnvPath(common) or TOP, _sum(rest), more=len(rest)))


def _sum(counts: Sequence[ChangeCount]) -> ChangeCount:
    return ChangeCount(
        sum(each.added for each in counts),
        sum(each.modified for each in counts),
        sum(each.removed for each in counts),
    )
