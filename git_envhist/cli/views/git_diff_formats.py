"""`--stat`, `--name-only`, `--name-status` and `--raw`, in git's own layout."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.output import Palette
from git_envhist.cli.quote_path import all_plain, quoted
from git_envhist.cli.terminal import width
from git_envhist.cli.views.diff_source import DiffContents, DiffSource, DiffStyle, is_in_pieces, is_sealed
from git_envhist.diff.patches import read_line_counts, read_sizes
from git_envhist.diff.path_classes import content_differs
from git_envhist.git.cat_file import CatFile
from git_envhist.lazy import dataclass
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, ObjectId

# `--name-only`, `--name-status`, `--raw`: one record per change, as git prints them, also with `-z`.

TYPE_BITS = {
    EntryKind.FILE: 0o100000,
    EntryKind.LINK: 0o120000,
    EntryKind.DIRECTORY: 0o040000,
    EntryKind.FIFO: 0o010000,
    EntryKind.SOCKET: 0o140000,
    EntryKind.CHARACTER_DEVICE: 0o020000,
    EntryKind.BLOCK_DEVICE: 0o060000,
    EntryKind.BOUNDARY: 0o160000,
}
ID_LENGTHS = (20, 32)
LETTERS = {kind.value: kind.value.encode("ascii") for kind in ChangeKind}


def name_only(changes: tuple[Change, ...], style: DiffStyle) -> Iterator[bytes]:
    """Yield the path of each change; of a renamed file the new one."""
    for change in changes:
        yield _record([change.path], style)


def name_status(changes: tuple[Change, ...], style: DiffStyle) -> Iterator[bytes]:
    """Yield git's letter and the path, or both paths of a rename."""
    if not style.ended_by_nul and all_plain([change.path for change in changes]):
        # Nearly all lists have plain paths: these are not checked one by one.
        yield b"".join([_plain_line(change, style) for change in changes])
        return
    for change in changes:
        yield _record([letter(change), *paths(change)], style)


def raw(changes: tuple[Change, ...], style: DiffStyle) -> Iterator[bytes]:
    """Yield git's raw format with full ids; the modes have all twelve bits and the type."""
    zeros = b"0" * (2 * _id_length(changes))
    for change in changes:
        modes = b" ".join(
            b"%06o" % (side_mode(side) if side else 0) for side in (change.before, change.after)
        )
        ids = b" ".join(_id(side) or zeros for side in (change.before, change.after))
        yield _record([b":" + modes + b" " + ids + b" " + letter(change), *paths(change)], style)


def letter(change: Change) -> bytes:
    """Return the status letter, for a rename with the similarity, as git does."""
    word = change.kind.value.encode("ascii")
    return word + b"%03d" % (change.similarity or 0) if change.kind is ChangeKind.RENAMED else word


def paths(change: Change) -> list[bytes]:
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        return [change.before.path, change.path]
    return [change.path]


def _plain_line(change: Change, style: DiffStyle) -> bytes:
    before, after = change.before, change.after
    if before is not None and after is not None and (before.path, before.kind) == (after.path, after.kind):
        return b"M\t%b\n" % (after.path or b".")
    kind = change.kind
    if kind is ChangeKind.RENAMED:
        return _record([letter(change), *paths(change)], style)
    return b"%b\t%b\n" % (LETTERS[kind.value], change.path or b".")


def side_mode(side: ChangeSide) -> int:
    """Return the mode as stat(2) gives it; that of a link as git gives it, because a link has no permission bits."""
    return TYPE_BITS[side.kind] | (0 if side.kind is EntryKind.LINK else side.mode)


def shown_path(path: bytes, style: DiffStyle) -> bytes:
    """Return the path as it is printed, in quotes if needed; the top is a dot."""
    return quoted(path or b".", quote_all=style.quote_all)


def _record(fields: list[bytes], style: DiffStyle) -> bytes:
    if style.ended_by_nul:
        return b"".join((field or b".") + b"\0" for field in fields)
    head = [field for field in fields[:1] if len(fields) > 1]
    return b"\t".join([*head, *(shown_path(field, style) for field in fields[len(head) :])]) + b"\n"


def _id(side: ChangeSide | None) -> bytes | None:
    return None if side is None or side.oid is None else side.oid.hex().encode("ascii")


def _id_length(changes: tuple[Change, ...]) -> int:
    sides = (side for change in changes for side in (change.before, change.after))
    return next((len(side.oid) for side in sides if side is not None and side.oid is not None), ID_LENGTHS[0])


DEFAULT_COLUMNS = 80
NAME_DIRECTORY = {EntryKind.DIRECTORY: b"/"}


@dataclass(frozen=True, slots=True)
class StatLine:
    """One file: lines added and deleted, or its sizes if binary, or a word for other types."""

    name: str
    added: int = 0
    deleted: int = 0
    sizes: tuple[int, int] | None = None
    word: str = ""

    @property
    def total(self) -> int:
        return self.added + self.deleted


@dataclass(frozen=True, slots=True)
class Widths:
    """The widths of the columns of a line."""

    name: int
    number: int
    graph: int
    largest: int


def stat_texts(source: DiffSource, style: DiffStyle) -> Iterator[bytes]:
    """Yield the lines and their sum; nothing if nothing differs."""
    if not source.changes:
        return
    lines = _read_lines(source, style)
    widths = share_width(lines, style.columns or DEFAULT_COLUMNS)
    for line in lines:
        yield (_layout(line, widths, style.palette) + "\n").encode("utf-8", "surrogateescape")
    yield (_sum(lines) + "\n").encode("ascii")


def share_width(lines: list[StatLine], columns: int) -> Widths:
    """Divide the width between names and graphs as git does (diff.c, show_stats)."""
    longest = max(width(line.name) for line in lines)
    largest = max(line.total for line in lines)
    words = max(_word_width(line) for line in lines)
    special = any(line.sizes or line.word for line in lines)
    number = max(len(str(largest)), 3 if special else 0, *(len(line.word) for line in lines))
    columns = max(columns, 16 + 6 + number)
    graph = largest if largest + 4 > words else words - 4
    name = longest
    if name + number + 6 + graph > columns:
        if graph > columns * 3 // 8 - number - 6:
            # Words such as `sealed` are wider than git's numbers; git's words for binary files still have to fit.
            graph = max(
                columns * 3 // 8 - number - 6, 6, words - 4 if any(line.word for line in lines) else 0
            )
        if name > columns - number - 6 - graph:
            name = columns - number - 6 - graph
        else:
            graph = columns - number - 6 - name
    return Widths(name, number, graph, largest)


def _word_width(line: StatLine) -> int:
    return 14 + len(str(line.sizes[0])) + len(str(line.sizes[1])) if line.sizes else 0


def _read_lines(source: DiffSource, style: DiffStyle) -> list[StatLine]:
    texts = [change for change in source.changes if _has_lines(change)]
    counts = read_line_counts(source.git, source.before, source.after, texts, renames=source.renames)
    binary = [change for change in texts if counts.get(change.path) is None]
    sizes = read_sizes(source.git, _ids(binary))
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        lines = []
        for change in source.changes:
            name = _name(change, style)
            known = counts.get(change.path)
            if known is not None:
                lines.append(StatLine(name, *known))
            elif is_sealed(change) and content_differs(change):
                lines.append(StatLine(name, word="sealed"))
            elif is_in_pieces(change) and content_differs(change):
                lines.append(
                    StatLine(name, sizes=(contents.size(change.before), contents.size(change.after)))
                )
            elif _has_lines(change):
                lines.append(StatLine(name, sizes=(_size(change.before, sizes), _size(change.after, sizes))))
            else:
                lines.append(StatLine(name))
    return lines


def _has_lines(change: Change) -> bool:
    if not content_differs(change) or is_sealed(change) or is_in_pieces(change):
        return change.kind is ChangeKind.RENAMED
    return any(side is not None and side.oid is not None and side.kind is not EntryKind.DIRECTORY
               for side in (change.before, change.after))  # fmt: skip


def _ids(changes: list[Change]) -> list[ObjectId]:
    sides = (side for change in changes for side in (change.before, change.after))
    return [side.oid for side in sides if side is not None and side.oid is not None]


def _size(side: ChangeSide | None, sizes: dict[ObjectId, int]) -> int:
    return 0 if side is None or side.oid is None else sizes.get(side.oid, 0)


def _name(change: Change, style: DiffStyle) -> str:
    side = change.after or change.before
    assert side is not None
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        name = renamed(change.before.path, change.path, style)
    else:
        name = shown_path(change.path + NAME_DIRECTORY.get(side.kind, b""), style)
    return name.decode("utf-8", "surrogateescape")


def renamed(old: bytes, new: bytes, style: DiffStyle) -> bytes:
    """Return `dir/{old => new}/file`, as git shortens a rename."""
    quoted = [shown_path(path, style) for path in (old, new)]
    if quoted != [old, new]:
        return b" => ".join(quoted)
    start = 0
    for position, (one, other) in enumerate(zip(old, new, strict=False), start=1):
        if one != other:
            break
        if one == ord("/"):
            start = position
    end = 0
    # The common prefix and suffix may share a slash.
    longest = min(len(old), len(new)) - max(start - 1, 0)
    for length in range(1, longest + 1):
        if old[-length] != new[-length]:
            break
        if old[-length] == ord("/"):
            end = length
    middle = [path[start : max(start, len(path) - end)] for path in (old, new)]
    if not start and not end:
        return old + b" => " + new
    return old[:start] + b"{" + b" => ".join(middle) + b"}" + (old[len(old) - end :] if end else b"")


def _layout(line: StatLine, widths: Widths, palette: Palette) -> str:
    name = _fit(line.name, widths.name)
    head = f" {name}{' ' * (widths.name - width(name))} |"
    if line.word:
        return f"{head} {line.word:>{widths.number}}"
    if line.sizes is not None:
        text = f"{head} {'Bin':>{widths.number}}"
        if line.sizes == (0, 0):
            return text
        old = palette.paint("removed", str(line.sizes[0]))
        new = palette.paint("added", str(line.sizes[1]))
        return f"{text} {old} -> {new} bytes"
    plus, minus = _graph(line, widths)
    graph = palette.paint("added", "+" * plus) + palette.paint("removed", "-" * minus)
    return f"{head} {line.total:>{widths.number}}" + (f" {graph}" if graph else "")


def _fit(name: str, columns: int) -> str:
    if width(name) <= columns:
        return name
    kept = name
    while kept and width(kept) > columns - 3:
        kept = kept[1:]
    slash = kept.find("/")
    return "..." + (kept[slash:] if slash >= 0 else kept)


def _graph(line: StatLine, widths: Widths) -> tuple[int, int]:
    added, deleted = line.added, line.deleted
    if widths.graph > widths.largest:
        return added, deleted
    total = _scale(added + deleted, widths)
    if total < 2 and added and deleted:
        total = 2
    if added < deleted:
        added = _scale(added, widths)
        return added, total - added
    deleted = _scale(deleted, widths)
    return total - deleted, deleted


def _scale(number: int, widths: Widths) -> int:
    return 1 + number * (widths.graph - 1) // widths.largest if number else 0


def _sum(lines: list[StatLine]) -> str:
    added, deleted = sum(line.added for line in lines), sum(line.deleted for line in lines)
    parts = [f" {len(lines)} file{'' if len(lines) == 1 else 's'} changed"]
    if added or not deleted:
        parts.append(f"{added} insertion{'' if added == 1 else 's'}(+)")
    if deleted or not added:
        parts.append(f"{deleted} deletion{'' if deleted == 1 else 's'}(-)")
    return ", ".join(parts)
