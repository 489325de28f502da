"""What our programs tell under `--json`, as the words of the model: so it is folded as they fold it themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, EnvPath

Json = Mapping[str, Any]


def changes_of(told: Iterable[Json]) -> list[Change]:
    """The paths that differ."""
    return [_change(one["status"], one["path"], one.get("old_path")) for one in told]


def steps_of(told: Iterable[Json]) -> list[Change]:
    """The steps of a plan as changes of the paths they touch."""
    return [Change(_side(one["path"], one["before"]), _side(one["path"], one["after"])) for one in told]


def _change(status: str, path: str, old_path: str | None) -> Change:
    before = None if status == ChangeKind.ADDED.value else _side(old_path or path)
    return Change(before, None if status == ChangeKind.REMOVED.value else _side(path))


def _side(path: str, kind: str | None = "file") -> ChangeSide | None:
    if kind is None:
        return None
    stands = EntryKind.DIRECTORY if kind == "directory" else EntryKind.FILE
    # As it is to be shown: where it is no UTF-8 the programs have spelled it out.
    return ChangeSide(EnvPath(path.encode("utf-8", "surrogateescape")), stands, 0, None)
