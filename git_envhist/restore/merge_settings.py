"""Merge three versions of a JSON, TOML or YAML file by its keys (pure).

Only mappings are merged by key; a list is one value. The text of ours is edited where a value changed, so that its
order, comments and layout stay. A result is returned only if it reads back as the merged values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from git_envhist.diff.config_files import MAX_SIZE, read_yaml
from git_envhist.restore.edit_json import edit_json, read_json
from git_envhist.restore.edit_toml import edit_toml
from git_envhist.restore.edit_yaml import edit_yaml
from git_envhist.restore.merge_keys import ABSENT, KeyMerge, KeyPath, same_value, value_at
from git_envhist.restore.merge_variables import line_end_of
from git_envhist.restore.three_way import Prefer
from git_envhist.toml_text import read_toml

MAX_JSON = 4 << 20
"""Larger JSON files are merged by lines; lock files are often larger than settings."""
MAX_CHANGES, MAX_SCANS = 2000, 100
"""The number of changed keys that are edited; TOML and YAML are read again for each of them."""
MAX_SEARCHED = 1 << 30
"""The size of the text times the number of changed keys: the place of a new key is searched in all others."""

Values = dict[str, Any]
Edit = Callable[[str, str, KeyMerge], str | None]


class SettingsFormat(NamedTuple):
    """A format of settings: how a text is read and edited."""

    read: Callable[[str], Values | None]
    edit: Edit
    max_size: int
    max_changes: int


JSON = SettingsFormat(
    read_json, lambda ours, theirs, found: edit_json(ours, theirs, found.changes), MAX_JSON, MAX_CHANGES
)
TOML = SettingsFormat(
    read_toml,
    lambda ours, theirs, found: edit_toml(ours, theirs, found.changes, found.merged),
    MAX_SIZE,
    MAX_SCANS,
)
YAML = SettingsFormat(
    read_yaml, lambda ours, theirs, found: edit_yaml(ours, theirs, found.changes), MAX_SIZE, MAX_SCANS
)
FORMATS = {
    **dict.fromkeys((b".json", b".jsonc", b".webmanifest"), JSON),
    **dict.fromkeys((b".toml", b"Pipfile"), TOML),
    **dict.fromkeys((b".yaml", b".yml"), YAML),
}
NAMES = {
    **dict.fromkeys((b"poetry.lock", b"uv.lock"), TOML),
    **dict.fromkeys((b"Pipfile.lock", b"deno.lock", b".package-lock.json"), JSON),
}


def format_of(path: bytes) -> SettingsFormat | None:
    """Return the format of a file by its name; None if it is not merged by keys."""
    name = path.rpartition(b"/")[2]
    return (
        NAMES.get(name) or FORMATS.get(name) or FORMATS.get(name[name.rfind(b".") :] if b"." in name else b"")
    )


class MergedSettings(NamedTuple):
    """The result of merging settings."""

    text: bytes | None
    """None: no text gives the merged values, so that the file is a conflict."""
    conflicts: tuple[str, ...]
    """The keys in conflict."""


class SettingsMerge:
    """Three versions of a file of settings, read and merged by key."""

    def __init__(
        self,
        form: SettingsFormat,
        texts: tuple[str, str, str],
        values: tuple[Values, Values, Values],
        prefer: Prefer,
    ) -> None:
        self._format = form
        self._texts = texts
        self._values = values
        self._merged = KeyMerge.of(*values, prefer)

    @classmethod
    def read(cls, path: bytes, versions: tuple[bytes, bytes, bytes], prefer: Prefer) -> SettingsMerge | None:
        """Read base, ours and theirs; None if the name has no format, or a version cannot be read for certain."""
        form = format_of(path)
        if form is None or max(map(len, versions)) > form.max_size:
            return None
        texts = [_decode(one) for one in versions]
        values = [None if text is None else _values(form, text) for text in texts]
        base, ours, theirs = values
        if base is None or ours is None or theirs is None:
            return None
        try:
            return cls(form, (texts[0] or "", texts[1] or "", texts[2] or ""), (base, ours, theirs), prefer)
        except (ValueError, RecursionError):
            return None

    def with_lines(self, lines: bytes | None) -> MergedSettings:
        """Return the merge by lines, which also merges comments, if it gives the merged values; else edit ours.

        A file that is nested too deeply, or whose values cannot be written, has no text.
        """
        try:
            return self._with_lines(lines)
        except (ValueError, RecursionError):
            return MergedSettings(None, ())

    def _with_lines(self, lines: bytes | None) -> MergedSettings:
        conflicts = self._merged.conflicts
        text = None if lines is None else _decode(lines)
        values = None if text is None else _values(self._format, text)
        if lines is not None and values is not None and self._agrees(values):
            return MergedSettings(lines, ())
        if conflicts:
            return MergedSettings(None, tuple(map(_shown, conflicts)))
        return MergedSettings(self._edited(), ())

    def _agrees(self, values: Values) -> bool:
        """Return whether values are the merged ones; lists that both sides changed may be merged by lines."""
        wanted = _copy(self._merged.merged) if self._merged.conflicts else self._merged.merged
        for path in self._merged.conflicts:
            if not all(isinstance(value_at(side, path), list) for side in (*self._values, values)):
                return False
            above: Any = value_at(wanted, path[:-1])
            above[path[-1]] = value_at(values, path)
        return same_value(wanted, values)

    def _edited(self) -> bytes | None:
        _, ours, theirs = self._texts
        number = len(self._merged.changes)
        if number > self._format.max_changes or number * len(ours) > MAX_SEARCHED:
            return None
        ends = line_end_of(ours.encode())
        if ends is None or line_end_of(theirs.encode()) is None:
            return None
        text = self._format.edit(ours.replace("\r\n", "\n"), theirs.replace("\r\n", "\n"), self._lifted())
        if text is None:
            return None
        values = _values(self._format, text)
        if values is None or not same_value(values, self._merged.merged):
            return None
        return text.encode().replace(b"\n", ends)

    def _lifted(self) -> KeyMerge:
        """Return the merge with changes below a mapping that ours does not have given for the whole mapping."""
        changes: dict[KeyPath, object] = {}
        for path, value in self._merged.changes.items():
            depth = next(
                (size for size in range(1, len(path)) if value_at(self._values[1], path[:size]) is ABSENT),
                None,
            )
            if depth is None:
                changes[path] = value
            else:
                changes[path[:depth]] = value_at(self._merged.merged, path[:depth])
        return KeyMerge(self._merged.prefer, self._merged.merged, changes, [])


def _copy(mapping: Mapping[str, Any]) -> Values:
    """Return a copy of a mapping and of all mappings in it."""
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in mapping.items()}


def _decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _values(form: SettingsFormat, text: str) -> Values | None:
    try:
        return form.read(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError):
        return None


def _shown(path: KeyPath) -> str:
    return ".".join(map(str, path))
