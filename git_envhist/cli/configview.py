"""Changed files of configuration by their keys: read from both sides when a difference is shown, and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.cli.diffsource import DiffContents, DiffSource, DiffStyle
from git_envhist.cli.factview import fact_texts
from git_envhist.history.diff import has_other_bytes
from git_envhist.history.settingsdiff import compare_settings, reader_of
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange, StoredAs
from git_envhist.store.objects import CatFile

PROBE = "config"
MOST_FILES = 60
"""Of more at once than these nobody reads the keys."""
MASKED = "***"


def config_texts(source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """The rows: a file, and the keys in which it differs."""
    yield from fact_texts(config_facts(source), manner, secrets=True)


def config_facts(source: DiffSource) -> tuple[FactChange, ...]:
    """The keys that differ, as facts without values."""
    files = [change for change in source.changes if _is_told(change)]
    if not files or len(files) > MOST_FILES:
        return ()
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        return tuple(fact for change in files for fact in _keys(change, contents))


def _is_told(change: Change) -> bool:
    """Whether a file was there before and is one of configuration; sealed ones are told by variables or not at all."""
    if change.kind is not ChangeKind.MODIFIED or reader_of(change.path) is None:
        return False
    sides = (change.before, change.after)
    plain = all(side and side.kind is EntryKind.FILE and side.stored is StoredAs.PLAIN for side in sides)
    return plain and has_other_bytes(change)


def _keys(change: Change, contents: DiffContents) -> Iterable[FactChange]:
    path = change.path.decode("utf-8", "surrogateescape")
    for mark, key in compare_settings(change.path, *contents.both(change)):
        before, after = (None if mark == lacking else MASKED for lacking in "+−")
        # A key may have slashes itself.
        yield FactChange(PROBE, f"{path}{'//' if '/' in key else '/'}{key}", before, after, change.path)
