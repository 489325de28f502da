"""`-p`: a unified diff of every change.

Contents are git's own patches. Sealed files are shown by their variables, files in chunks by their sizes, and changes
that only the manifest contains by git's lines for modes. `FORMS` are all formats that `envdiff` and `envlog` share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.formats import size
from git_envhist.cli.output import RESET, Output, Palette
from git_envhist.cli.quote_path import quoted
from git_envhist.cli.terminal import mark_colour
from git_envhist.cli.views.diff_source import (
    DiffContents,
    DiffSource,
    DiffStyle,
    is_in_pieces,
    is_sealed,
    is_sealed_variables_file,
)
from git_envhist.diff.patches import PIECE, GitPatch, read_patches
from git_envhist.diff.path_classes import content_differs, is_nested_repository
from git_envhist.errors import SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, StoredAs
from git_envhist.printable_text import escape

if TYPE_CHECKING:
    from git_envhist.probes.variables import VariableChange

# The formats that `git envdiff` and `git envlog` share, by the names of their options.

FOR_PEOPLE = ("story", "stat")
"""The formats for people."""
FORMS = ("story", "stat", "name_status", "name_only", "raw", "patch")


def print_diff(output: Output, form: str, source: DiffSource, style: DiffStyle) -> None:
    """Print the changes in one of `FORMS`."""
    write: Callable[[bytes], None] = output.write
    if style.ended_by_nul:
        write = output.exact
    elif form not in FOR_PEOPLE:
        write = output.content
    for text in diff_texts(form, source, style):
        write(text)


def diff_texts(form: str, source: DiffSource, style: DiffStyle) -> Iterator[bytes]:
    """Yield the changes in one of `FORMS`, in parts."""
    if form == "stat":
        from git_envhist.cli.views.git_diff_formats import stat_texts  # loaded late: only --stat needs it

        return stat_texts(source, style)
    if form == "patch":
        return patch_texts(source, style)
    if form == "story":
        from git_envhist.cli.views.diff_rows import (
            story_texts,  # loaded late: only the default format needs it
        )

        return story_texts(source, style)
    from git_envhist.cli.views import git_diff_formats  # loaded late: only lists of paths need it

    texts: Callable[[tuple[Change, ...], DiffStyle], Iterator[bytes]] = getattr(git_diff_formats, form)
    return texts(source.changes, style)


MASKED = b"***"
ATTRIBUTE_LINES = {
    "owner": b"owner changed",
    "xattr": b"extended attributes changed",
    "device": b"device number changed",
    "content": b"content changed; only its fingerprint was kept",
}
WITH_LINES = (EntryKind.FILE, EntryKind.LINK)
MARKS = {"−": b"-"}


def patch_texts(source: DiffSource, style: DiffStyle) -> Iterator[bytes]:
    """Yield the patch of every change, in the order of paths."""
    in_git_patch = {change.path: change for change in source.changes if _is_in_git_patch(change)}
    in_words = [change for change in source.changes if change.path not in in_git_patch]
    patches = read_patches(
        source.git, source.before, source.after, tuple(in_git_patch.values()),
        renames=source.renames, quote_all=style.quote_all, whole_ids=style.full_index,
    )  # fmt: skip
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        for patch in patches:
            while in_words and in_words[0].path < patch.path:
                yield _finish(_in_words(in_words.pop(0), contents, style), style)
            if patch.path in in_git_patch:
                yield _finish(_from_git(patch, in_git_patch[patch.path], style), style)
        for change in in_words:
            yield _finish(_in_words(change, contents, style), style)


def _is_in_git_patch(change: Change) -> bool:
    if is_sealed(change) or is_in_pieces(change) or not content_differs(change):
        return False
    return any(
        side is not None and side.oid is not None and side.kind in WITH_LINES
        for side in (change.before, change.after)
    )


def _from_git(patch: GitPatch, change: Change, style: DiffStyle) -> bytes:
    text = patch.text
    if patch.renamed or not (style.quote_all or all(path.isascii() for _, path in _names(change))):
        pieces = re.split(rb"(?m)^(?=" + PIECE + rb")", text)
        text = b"".join(_with_true_names(piece, change, style) for piece in pieces if piece)
    if "mode" in change.attributes and b"\nold mode " not in text.partition(b"\n@@ ")[0]:
        first, _, rest = text.partition(b"\n")
        text = b"\n".join([first, *_mode_lines(change), rest])
    return text


def _with_true_names(piece: bytes, change: Change, style: DiffStyle) -> bytes:
    old, new = (quoted(prefix + path, quote_all=style.quote_all) for prefix, path in _names(change))
    head, hunks, rest = piece.partition(b"\n@@ ")
    lines = []
    for line in head.split(b"\n"):
        if line.startswith(PIECE):
            line = PIECE + old + b" " + new
        elif line.startswith(b"rename from "):
            line = b"rename from " + quoted(_names(change)[0][1], quote_all=style.quote_all)
        elif line.startswith(b"rename to "):
            line = b"rename to " + quoted(_names(change)[1][1], quote_all=style.quote_all)
        elif line.startswith(b"--- ") and line != b"--- /dev/null":
            line = b"--- " + old
        elif line.startswith(b"+++ ") and line != b"+++ /dev/null":
            line = b"+++ " + new
        elif line.startswith(b"Binary files "):
            left = b"/dev/null" if line.startswith(b"Binary files /dev/null ") else old
            right = b"/dev/null" if line.endswith(b" /dev/null differ") else new
            line = b"Binary files " + left + b" and " + right + b" differ"
        lines.append(line)
    return b"\n".join(lines) + hunks + rest


def _names(change: Change) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    before, after = change.before or change.after, change.after or change.before
    assert before is not None
    assert after is not None
    return (b"a/", before.path), (b"b/", after.path)


def _in_words(change: Change, contents: DiffContents, style: DiffStyle) -> bytes:
    lines = [*_head(change, style)]
    if is_nested_repository(change):
        lines.append(b"nested repository: its .git changed")
    elif content_differs(change) and is_sealed(change):
        lines += _sealed_lines(change, contents, style)
    elif content_differs(change) and is_in_pieces(change):
        lines.append(_pieces_line(change, contents))
    lines += [ATTRIBUTE_LINES[word] for word in change.attributes if word in ATTRIBUTE_LINES]
    return b"\n".join(lines) + b"\n"


def _head(change: Change, style: DiffStyle) -> Iterator[bytes]:
    from git_envhist.cli.views.git_diff_formats import side_mode  # loaded late: few patches need it

    old, new = (quoted(prefix + path, quote_all=style.quote_all) for prefix, path in _names(change))
    yield PIECE + old + b" " + new
    if change.before is None and change.after is not None:
        yield b"new file mode %06o" % side_mode(change.after)
    elif change.after is None and change.before is not None:
        yield b"deleted file mode %06o" % side_mode(change.before)
    else:
        yield from _mode_lines(change)
        yield from _move_lines(change, style)


def _move_lines(change: Change, style: DiffStyle) -> Iterator[bytes]:
    if change.kind is ChangeKind.RENAMED:
        old, new = (quoted(path, quote_all=style.quote_all) for _, path in _names(change))
        yield b"similarity index %d%%" % (change.similarity or 0)
        yield b"rename from " + old
        yield b"rename to " + new


def _mode_lines(change: Change) -> list[bytes]:
    from git_envhist.cli.views.git_diff_formats import side_mode  # loaded late: few patches need it

    assert change.before is not None
    assert change.after is not None
    old, new = side_mode(change.before), side_mode(change.after)
    return [b"old mode %06o" % old, b"new mode %06o" % new] if old != new else []


def _sealed_lines(change: Change, contents: DiffContents, style: DiffStyle) -> list[bytes]:
    from git_envhist.probes.variables import compare_variables  # loaded late: only files of variables need it

    text = b"sealed file " + {"A": b"added", "D": b"removed"}.get(change.kind.value, b"changed")
    shows_values = style.reveal
    if not shows_values and not is_sealed_variables_file(change):
        return _with_masks(change, contents, style) or _as_hunk(change, style, text)
    try:
        old, new = contents.both(change)
    except SealingError as failure:
        return _as_hunk(change, style, text + b": " + escape(failure.message).encode())
    if shows_values:
        return _revealed(change, old, new, style)
    text += b", values masked (--reveal shows them)"
    return _as_hunk(change, style, text, compare_variables(old, new))


def _with_masks(change: Change, contents: DiffContents, style: DiffStyle) -> list[bytes]:
    """Return the diff of a sealed program with its secrets masked; nothing if the mask hides the change."""
    from git_envhist.secrets.rules import mask_program  # loaded late: few patches show a sealed program

    sides = [side for side in (change.before, change.after) if side is not None]
    try:
        old, new = contents.both(change)
    except SealingError:
        return []
    texts = [
        mask_program(sides[0].path, old) if old else b"",
        mask_program(sides[-1].path, new) if new else b"",
    ]
    if texts[0] is None or texts[1] is None or texts[0] == texts[1]:
        return []
    return _revealed(change, texts[0], texts[1], style)


def _as_hunk(
    change: Change, style: DiffStyle, text: bytes, variables: Sequence[VariableChange] = ()
) -> list[bytes]:
    """Yield the lines about a file; on a terminal as a hunk, because a pager such as delta hides all other lines."""
    if not _is_readable_form(style):
        # A patch that is applied must not write masked text.
        return [text, *map(_masked, variables)]
    old = [b"-" + one.key.encode() + b"=" + MASKED for one in variables if one.mark != "+"]
    new = [b"+" + one.key.encode() + b"=" + MASKED for one in variables if one.mark not in MARKS]
    if not old and not new:
        old = [b"-(sealed)"] if change.before is not None else []
        new = [b"+(sealed)"] if change.after is not None else []
    left, right = _sides(change, style)
    counts = [b"%d,%d" % (bool(lines), len(lines)) for lines in (old, new)]
    return [b"--- " + left, b"+++ " + right, b"@@ -%s +%s @@ " % (counts[0], counts[1]) + text, *old, *new]


def _masked(variable: VariableChange) -> bytes:
    mark = MARKS.get(variable.mark, variable.mark.encode())
    return mark + b" " + variable.key.encode() + b"=" + MASKED


def _sides(change: Change, style: DiffStyle) -> tuple[bytes, bytes]:
    names = [quoted(prefix + path, quote_all=style.quote_all) for prefix, path in _names(change)]
    left = names[0] if change.before is not None else b"/dev/null"
    return left, names[1] if change.after is not None else b"/dev/null"


def _revealed(change: Change, old: bytes, new: bytes, style: DiffStyle) -> list[bytes]:
    from git_envhist.diff.config_files import (  # loaded late: only configuration files need it
        is_binary,
        unified_hunks,
    )

    left, right = _sides(change, style)
    if is_binary(old) or is_binary(new):
        return [b"Binary files " + left + b" and " + right + b" differ"]
    hunks = unified_hunks(old, new)
    return [b"--- " + left, b"+++ " + right, hunks.removesuffix(b"\n")] if hunks else []


def _pieces_line(change: Change, contents: DiffContents) -> bytes:
    text = [_size_of(side, contents) for side in (change.before, change.after) if side is not None]
    return b"pieces, " + " -> ".join(text).encode()


def _size_of(side: ChangeSide, contents: DiffContents) -> str:
    return "sealed" if side.stored is StoredAs.SEALED else size(contents.size(side))


def _is_readable_form(style: DiffStyle) -> bool:
    return style.columns is not None or style.palette.coloured


def _finish(text: bytes, style: DiffStyle) -> bytes:
    # On a terminal, contents are escaped; into a file they are written unchanged, for `git apply`.
    if _is_readable_form(style):
        text = escape(text, lines=True).encode("utf-8")
    return _paint(text, style.palette)


def _paint(text: bytes, palette: Palette) -> bytes:
    if not palette.coloured:
        return text
    in_head = True
    painted = []
    for line in text.removesuffix(b"\n").split(b"\n"):
        in_head = in_head and not line.startswith(b"@@ ")
        slot = "heading" if in_head and line[:2] not in (b"+ ", b"- ", b"~ ") else _slot(line)
        painted.append(_paint_line(line, slot, palette))
    return b"\n".join(painted) + b"\n"


def _slot(line: bytes) -> str:
    return {b"+": "added", b"-": "removed", b"@": "modified", b"~": "modified"}.get(line[:1], "")


def _paint_line(line: bytes, slot: str, palette: Palette) -> bytes:
    colour = mark_colour(palette.colours.get(slot, ""))
    return colour.encode("ascii") + line + RESET.encode("ascii") if colour and line else line
