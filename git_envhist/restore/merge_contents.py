"""Merge three versions of a file that changed on both sides, by the units of its kind.

`merge_contents` is the only entry. Which units a file has depends on its path and content: lines for all other text.
A file that cannot be merged stays whole, and is one conflict.
"""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.config import MERGE_LIMIT
from git_envhist.diff.path_classes import PACKAGES, class_of
from git_envhist.dotenv import read_assignments
from git_envhist.git.merge_file import merge_text
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.model import EnvPath
from git_envhist.printable_text import escape
from git_envhist.probes.variables import is_variables_file
from git_envhist.restore.merge_rows import DatabaseVersion, is_database, merge_rows
from git_envhist.restore.merge_settings import SettingsMerge, format_of
from git_envhist.restore.merge_variables import loses_text, merge_variables
from git_envhist.restore.three_way import ConflictReason, Prefer

SIDES = {Prefer.OURS, Prefer.THEIRS}
MARKER = b"<<<<<<< "
INSTALLED_LISTS = (b"node_modules/.package-lock.json", b"node_modules/.pnpm/lock.yaml")
"""Lists of installed packages, which every installation changes."""
SOURCE_LINKS = b"easy-install.pth"
"""The directories of packages that were installed as links to their source, one per line."""

OTHER_TEXT = "lines that set no variable, or the words before a variable, changed there"


class Versions(NamedTuple):
    """Three versions of a file."""

    base: bytes
    ours: bytes
    theirs: bytes


class MergedContents(NamedTuple):
    """The merged content of a file, and the conflicts in it."""

    content: bytes
    conflicts: tuple[str, ...] = ()
    """The reason of each conflict that the preferred side does not decide."""


@dataclass(frozen=True, slots=True)
class MergeTools:
    """The means of merging contents: git, the labels of markers, and the preferred side."""

    git: Git
    labels: tuple[str, str, str] = ("now", "base", "other")
    """Names of ours, base and theirs."""
    prefer: Prefer = Prefer.NEITHER
    max_database: int = MERGE_LIMIT
    """A larger database is not merged by rows."""


def merge_contents(
    path: EnvPath, base: bytes, ours: bytes, theirs: bytes, tools: MergeTools, *, is_secret: bool = False
) -> MergedContents | None:
    """Return the merged content of a file; None if it is taken from one side as a whole.

    `is_secret`: the content must not be written to a disk, not even to a temporary file.
    """
    versions = Versions(base, ours, theirs)
    if is_variables_file(path):
        return _merge_named_variables(versions, tools, is_secret)
    settings = SettingsMerge.read(path, versions, tools.prefer) if _has_keys(path) else None
    if settings is not None:
        return _merge_settings(versions, settings, tools, is_secret)
    if is_secret:
        return None
    if path.endswith(SOURCE_LINKS):
        return MergedContents(merge_set(versions))
    if all(map(is_database, versions)):
        files = (DatabaseVersion(base), DatabaseVersion(ours), DatabaseVersion(theirs))
        return merge_databases(files, tools) or unmerged(tools)
    return None if class_of(path) == PACKAGES else merge_lines(versions, tools)


def has_units(path: EnvPath) -> bool:
    """Return whether a file is merged by units that are smaller than lines, as far as its path shows."""
    return is_variables_file(path) or (_has_keys(path) and format_of(path) is not None)


def unmerged(tools: MergeTools) -> MergedContents | None:
    """Return the result for a file that has units and cannot be merged.

    It is a conflict also if theirs is preferred: the version of theirs would remove other changes of ours.
    """
    return MergedContents(b"", (ConflictReason.CONTENT,)) if tools.prefer is Prefer.THEIRS else None


def _has_keys(path: EnvPath) -> bool:
    """Return whether a file may be merged by keys: none of an installed package, but a list of packages."""
    return class_of(path) != PACKAGES or path.endswith(INSTALLED_LISTS)


def _merge_settings(
    versions: Versions, settings: SettingsMerge, tools: MergeTools, is_secret: bool
) -> MergedContents | None:
    lines = None if is_secret else merge_lines(versions, tools)
    if lines is not None and tools.prefer is Prefer.MARKERS and has_markers(lines.content):
        return lines
    merged = settings.with_lines(None if lines is None or lines.conflicts else lines.content)
    if merged.conflicts:
        named = tuple(f"setting {escape(key)} changed on both sides" for key in merged.conflicts)
        # Keys may be secret: some programs use tokens as keys.
        return MergedContents(versions.ours, (_count(len(named)),) if is_secret else named)
    return unmerged(tools) if merged.text is None else MergedContents(merged.text)


def _count(settings: int) -> str:
    return f"{settings:,} setting{'' if settings == 1 else 's'} changed on both sides"


def merge_databases(
    versions: tuple[DatabaseVersion, DatabaseVersion, DatabaseVersion], tools: MergeTools
) -> MergedContents | None:
    """Return a database (base, ours, theirs) merged by rows, without a log; None if one side is taken whole."""
    if max(one.size for one in versions) > tools.max_database:
        return None
    merged = merge_rows(*versions, tools.prefer)
    return None if merged is None else MergedContents(merged.database, merged.conflicts)


def merge_lines(versions: Versions, tools: MergeTools) -> MergedContents | None:
    """Return a text merged by lines, with markers at conflicts; None if a version is no text."""
    side = tools.prefer.value if tools.prefer in SIDES else ""
    merged = merge_text(tools.git, (versions.ours, versions.base, versions.theirs), tools.labels, side)
    if merged is None:
        return None
    is_open = merged.conflicts and tools.prefer is Prefer.NEITHER
    return MergedContents(merged.text, (ConflictReason.CONTENT,) if is_open else ())


def _merge_named_variables(versions: Versions, tools: MergeTools, is_secret: bool) -> MergedContents | None:
    lines = None if is_secret else merge_lines(versions, tools)
    if lines is not None and tools.prefer is Prefer.MARKERS and has_markers(lines.content):
        return lines
    merged = merge_variables(*versions, tools.prefer)
    if merged is None:
        return lines if lines is not None and lines.conflicts else unmerged(tools)
    same = lines is not None and read_assignments(lines.content) == read_assignments(merged.text)
    if lines is not None and same and not (lines.conflicts or merged.conflicts):
        # Lines also merge comments.
        return lines
    conflicts = tuple(f"variable {escape(name)} changed on both sides" for name in merged.conflicts)
    if tools.prefer is not Prefer.OURS and loses_text(*versions):
        conflicts += (OTHER_TEXT,)
    return MergedContents(merged.text, conflicts)


def merge_set(versions: Versions) -> bytes:
    """Return the lines of ours, with those that theirs added and without those that theirs removed."""
    lines = [one.splitlines(keepends=True) for one in versions]
    base, ours, theirs = map(frozenset, lines)
    kept = [line for line in lines[1] if line in theirs or line not in base]
    return b"".join([*kept, *(line for line in lines[2] if line not in ours and line not in base)])


def has_markers(text: bytes) -> bool:
    """Return whether a text has the markers of a conflict."""
    return text.startswith(MARKER) or b"\n" + MARKER in text
