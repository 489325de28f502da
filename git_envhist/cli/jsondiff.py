"""A diff as plain values for JSON; docs/schema/ describes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from git_envhist.cli.jsonform import SCHEMA, Json, fact_json, path_fields
from git_envhist.cli.terminal import escape_invalid
from git_envhist.history.diff import count, is_nested_repository
from git_envhist.model import Change, ChangeKind, ChangeSide, FactChange

KIND_WORDS = {
    "f": "file",
    "l": "link",
    "d": "directory",
    "p": "fifo",
    "s": "socket",
    "c": "character-device",
    "b": "block-device",
    "w": "worktree",
}


def diff_json(before: str, after: str, changes: Sequence[Change], facts: Iterable[FactChange]) -> Json:
    """Two moments, by id or `now`, with every path and every fact that differs."""
    moved = sum(change.kind is ChangeKind.RENAMED for change in changes)
    # A file that moved is told as that, and not a second time as one that came and one that went.
    counts = count(change for change in changes if change.kind is not ChangeKind.RENAMED)
    return {
        "schema": SCHEMA,
        "before": before,
        "after": after,
        "added": counts.added,
        "modified": counts.modified,
        "removed": counts.removed,
        "renamed": moved,
        "files": [change_json(change) for change in changes],
        "facts": [_fact(fact) for fact in facts],
    }


def change_json(change: Change) -> Json:
    """One path: what it was, what it is, and what else than its bytes differs."""
    fields: Json = {"status": change.kind.value, **path_fields(change.path)}
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        fields.update({f"old_{key}": value for key, value in path_fields(change.before.path).items()})
        fields["similarity"] = change.similarity
    fields["before"] = _side(change.before)
    fields["after"] = _side(change.after)
    fields["attributes"] = list(change.attributes)
    fields["nested_repository"] = is_nested_repository(change)
    return fields


def _side(side: ChangeSide | None) -> Json | None:
    if side is None:
        return None
    return {
        "kind": KIND_WORDS[side.kind.value],
        "mode": f"{side.mode:04o}",
        "oid": None if side.oid is None else side.oid.hex(),
        "stored": side.stored.value,
    }


def _fact(fact: FactChange) -> Json:
    return {
        key: escape_invalid(value) if isinstance(value, str) else value
        for key, value in fact_json(fact).items()
    }
