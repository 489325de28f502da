"""Summarize changes: counts, files folded by directory, and the one-line summary of a snapshot.

`count_changes` is the only definition of the number of changes; a capture that counts during its scan and a
comparison of two trees agree:

- A path that differs is one change. A path differs if its kind, its twelve mode bits, its bytes, their storage, its
  owner, its extended attributes or its device number do. Times and hard links are not compared.
- A path that is not a directory is added, removed or modified; it exists if the manifest names it, even without its
  bytes. A change of its kind is one modification.
- A directory is added or removed only if it is empty on the side where it exists; otherwise the paths in it represent
  it. It is modified if its mode, owner or extended attributes differ. The top is never added or removed.
- The `.git` of a nested repository is one path.
- Paths that the later snapshot could not capture, and paths below them, are not removed.
- Data outside the environment (facts, attachments, the staged tree) has no paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from git_envhist.diff.facts import ARROW, DUMP, counts_of, fact_rows, fact_words, restored_services
from git_envhist.diff.importance import amount_of, by_importance, mark_of
from git_envhist.diff.path_classes import CACHE, generated_in
from git_envhist.diff.split_fact_key import name_of, place_of
from git_envhist.lazy import dataclass, pattern
from git_envhist.model import (
    TOP,
    Change,
    ChangeCount,
    ChangeKind,
    ChangeSide,
    EnvPath,
    FactChange,
    Role,
    Snapshot,
    StoredAs,
)


def count_changes(changes: Iterable[Change]) -> ChangeCount:
    """Return the numbers of added, modified and removed paths; a rename is an addition and a removal."""
    added = modified = removed = 0
    for change in changes:
        kind = change.kind
        added += kind in (ChangeKind.ADDED, ChangeKind.RENAMED)
        removed += kind in (ChangeKind.REMOVED, ChangeKind.RENAMED)
        modified += kind in (ChangeKind.MODIFIED, ChangeKind.TYPE)
    return ChangeCount(added, modified, removed)


def is_stored(change: Change, stored: StoredAs) -> bool:
    """Return whether either side has this storage."""
    return any(side is not None and side.stored is stored for side in (change.before, change.after))


def sides(change: Change) -> tuple[ChangeSide, ...]:
    """Return the sides that exist, the earlier one first."""
    return tuple(side for side in (change.before, change.after) if side is not None)


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
    """A line of a folded list: a file with its change, a directory with the changes below it, or the rest."""

    path: EnvPath
    count: ChangeCount
    change: Change | None = None
    """The change, if the row is a file."""
    sort: str = ""
    """`cache` or `built` for a generated directory."""
    places: int = 1
    """The number of directories of this name, if the row counts several."""
    more: int = 0
    """The number of files and directories in the rest; `path` is their common directory."""


NOTHING = "nothing changed"


def describe_counts(changed: ChangeCount, first: bool = False) -> str:
    """`3,811 files in all` for a first snapshot, `+1,204 ~3 −1 files` for a later one."""
    if first:
        return f"{_files(changed.added)} in all"
    if not changed.total:
        return NOTHING
    return f"{describe_marks(changed)} {'file' if changed.total == 1 else 'files'}"


def changes_phrase(snapshot: Snapshot) -> str:
    """Return the snapshot's own summary, or the number of changed files."""
    words = snapshot.story or describe_counts(snapshot.changed, snapshot.parent is None)
    # The summary is written before the services are restored.
    return "no file changed" if words == NOTHING and restored_services(snapshot) else words


def with_ascii_signs(text: str) -> str:
    """Return a summary with `-` instead of the minus sign, for programs and files."""
    return MINUS.sub("-", text) if "−" in text else text


def with_minus_signs(text: str) -> str:
    """Return a summary that one of our programs printed, with minus signs."""
    return HYPHEN.sub("−", text)


def describe_marks(changed: ChangeCount) -> str:
    """`+3 ~11 −2`, without zeros."""
    marks = (("+", changed.added), ("~", changed.modified), ("−", changed.removed))
    return " ".join(f"{mark}{number:,}" for mark, number in marks if number)


def fold_by_directory(changes: Sequence[Change], limit: int = 12) -> tuple[SummaryRow, ...]:
    """Return at most `limit` rows that cover all changes: directories first, then single files.

    Folding begins below the common directory of all changes. Small directories there are listed file by file as long
    as the limit allows, the smallest first; a large one is one row. Caches of one name are one row in total.
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
    """Return changes in caches, by cache name and path, and all other changes."""
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
    """Return one row for all caches of a name."""
    first = next(iter(places))
    changed = count_changes(change for group in places.values() for change in group)
    path = first if len(places) == 1 else first.rpartition(b"/")[2]
    return SummaryRow(EnvPath(path + b"/"), changed, sort=CACHE, places=len(places))


def _common_directory(changes: Sequence[Change]) -> bytes:
    """Return the deepest directory that contains all changes, with a slash; empty for the top."""
    # All paths between the least and the greatest one have their common prefix.
    least, greatest = min(change.path for change in changes), max(change.path for change in changes)
    length = 0
    for one, other in zip(least, greatest, strict=False):
        if one != other:
            break
        length += 1
    common = least[: least.rfind(b"/", 0, length) + 1]
    _, built = generated_in(common[:-1])
    # A build directory is one row, at any depth of the changes in it.
    return built[: built.rfind(b"/") + 1] if built else common


def _group(changes: Sequence[Change], start: int) -> dict[bytes, list[Change]]:
    """Return the changes by the file or directory (with a slash) below the common one."""
    groups: dict[bytes, list[Change]] = {}
    for change in changes:
        slash = change.path.find(b"/", start)
        key = change.path if slash < 0 else change.path[: slash + 1]
        groups.setdefault(key, []).append(change)
    return groups


def _choose_opened(groups: dict[bytes, list[Change]], limit: int) -> frozenset[bytes]:
    """Return the groups that are listed file by file: those of one file, and the smallest ones within the limit."""
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
        return [SummaryRow(change.path, count_changes([change]), change) for change in group]
    return [SummaryRow(EnvPath(path), count_changes(group), sort=generated_in(path.rstrip(b"/"))[0])]


def _reading_order(row: SummaryRow) -> tuple[bool, bytes]:
    return row.change is not None, row.path


def _cut(rows: list[SummaryRow], common: bytes, limit: int) -> tuple[SummaryRow, ...]:
    """Return the rows with most changes, in order, and one row for the rest."""
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


# The summary of a snapshot.

VARIABLES = "env"
"""The kind of the variables' probe."""
DECLARED = "declared"
"""The probe of disagreements between lists and installed packages, which are too long for a summary."""
OF_ONE_FILE = ("parquet", "duckdb", "csv", "notebook")
"""Probes whose places are files; a summary names the file instead of its only table."""
MAX_PROBES = 4
MAX_NAMED = 2
"""The number of changes of a probe, and of variables of a file, that are named."""


def summarize(
    changes: Sequence[FactChange],
    changed: ChangeCount,
    kinds: Mapping[str, str],
    *,
    first: bool = False,
    names: bool = True,
) -> str:
    """Return the summary of a snapshot: `pip: +flask 3.0.1, +6 more · 1,204 files`, `~3 files · .env.local: ~API_URL`.

    `names`: False counts the variables of sealed files, `.env.local: +1 −1 variables`, as their names are sealed.
    """
    shown = [change for change in changes if change.probe != DECLARED]
    variables = [change for change in shown if kinds.get(change.probe) == VARIABLES]
    dumps = fact_rows((change for change in shown if change.probe == DUMP), tuple(kinds))
    by_probe: dict[str, list[FactChange]] = {}
    rows = fact_rows(
        (one for one in shown if kinds.get(one.probe) != VARIABLES and one.probe != DUMP), tuple(kinds)
    )
    for row in rows:
        by_probe.setdefault(row.probe, []).extend((*row.changes, *row.nested))
    parts = [f"{probe}: {_cells(found)}" for probe, found in list(by_probe.items())[:MAX_PROBES]]
    if len(by_probe) > MAX_PROBES:
        more = len(by_probe) - MAX_PROBES
        parts.append(f"{more} {'kind' if more == 1 else 'kinds'} more")
    parts += [f"{row.place}: {_cells(row.changes) if names else _amounts(row.changes)}" for row in dumps]
    if changed.total or not shown:
        parts.append(_count_files(changed, bool(by_probe) or bool(dumps), first))
    parts += _variable_parts(variables, names)
    return " · ".join(parts)


def _count_files(changed: ChangeCount, has_facts: bool, first: bool) -> str:
    if not has_facts:
        return describe_counts(changed, first)
    # A first snapshot counts every file, a later one those that changed.
    return f"{_files(changed.total)}{' in all' if first else ''}"


def _cells(changes: Iterable[FactChange]) -> str:
    """Name the most important changes and count the rest; dependencies are named only if there is nothing else."""
    ordered = by_importance(changes)
    listed = [one for one in ordered if one.role in (Role.DIRECT, Role.DEVELOPMENT)]
    others = [one for one in ordered if one.role is not Role.NESTED]
    # Without a list, packages that no package needs count as installed by the user.
    named = (listed or [one for one in others if not one.auto] or others)[:MAX_NAMED]
    rest = [one for one in ordered if one not in named]
    if not named:
        return f"{counts_of(rest)} nested"
    return ", ".join([*map(_cell, named), *([f"{counts_of(rest)} more"] if rest else [])])


def _amounts(changes: Sequence[FactChange]) -> str:
    """Return the numbers of lost and new rows, without the names of tables, which are sealed."""
    sides = [(amount_of(one.before), amount_of(one.after)) for one in changes]
    known = [(before or 0, after or 0) for before, after in sides if (before, after) != (None, None)]
    if not known:
        return fact_words(changes[0])
    lost = sum(max(before - after, 0) for before, after in known)
    gained = sum(max(after - before, 0) for before, after in known)
    unit = "keys" if any((one.after or one.before or "").endswith(" keys") for one in changes) else "rows"
    word = unit.removesuffix("s") if lost + gained == 1 else unit
    marks = " ".join(f"{mark}{number:,}" for mark, number in (("+", gained), ("−", lost)) if number)
    where = "" if unit == "keys" else f" in {len(known):,} {'table' if len(known) == 1 else 'tables'}"
    return f"{marks} {word}{where}" if marks else f"{len(known):,} other tables"


def _cell(change: FactChange) -> str:
    """Return a change with its sign, unless an arrow shows it."""
    words = fact_words(change)
    if change.probe in OF_ONE_FILE:
        words = f"{place_of(change).rpartition('/')[2]} {words.removeprefix('table ')}"
    return words if ARROW in words else mark_of(change) + words


def _variable_parts(changes: Sequence[FactChange], names: bool) -> list[str]:
    rows = fact_rows(changes, (VARIABLES,))
    parts = [f"{row.place}: {_variables(row.changes, names)}" for row in rows[:MAX_NAMED]]
    if len(rows) > MAX_NAMED:
        more = len(rows) - MAX_NAMED
        parts.append(f"{more} more {'file' if more == 1 else 'files'} of variables")
    return parts


def _variables(changes: Sequence[FactChange], names: bool) -> str:
    if not names:
        return f"{counts_of(changes)} {'variable' if len(changes) == 1 else 'variables'}"
    named = [mark_of(change) + name_of(change) for change in changes[:MAX_NAMED]]
    rest = changes[MAX_NAMED:]
    return ", ".join(named) + (f", {counts_of(rest)} more" if rest else "")
