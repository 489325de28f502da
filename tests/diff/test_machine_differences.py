"""Differences that exist between any two machines are grouped separately, and no others."""

from __future__ import annotations

import pytest

from git_envhist.diff import path_classes
from git_envhist.diff.path_classes import split_machine_differences
from git_envhist.model import Change, ChangeSide, EntryKind, EnvPath, ObjectId


def side(path: bytes, content: int, mode: int = 0o644, kind: EntryKind = EntryKind.FILE) -> ChangeSide:
    return ChangeSide(EnvPath(path), kind, mode, ObjectId(bytes([content]) * 20))


def changed(
    path: bytes, *, mode: int = 0o644, same: bool = False, attributes: tuple[str, ...] = ()
) -> Change:
    return Change(side(path, 1), side(path, 1 if same else 2, mode), attributes=attributes)


def sort_of(change: Change, *explained: bytes) -> str | None:
    apart = split_machine_differences([change], lambda place: place in explained)
    assert len(apart.remaining) + len(apart.by_nature) == 1
    return apart.by_nature[0][0] if apart.by_nature else None


@pytest.mark.parametrize(
    ("change", "sort"),
    [
        (changed(b"app.py", same=True, attributes=("owner",)), path_classes.OWNER),
        (changed(b"app.py", same=True, mode=0o664, attributes=("mode", "owner")), path_classes.OWNER),
        (changed(b"run.sh", same=True, mode=0o755, attributes=("mode",)), None),
        (changed(b"app.py", same=True, attributes=("owner", "xattr")), None),
        (changed(b"app.py", attributes=("owner",)), None),
        (changed(b"config/app.toml"), None),
        (changed(b"app.db"), None),
        (Change(None, side(b"__pycache__/a.cpython-311.pyc", 1)), path_classes.CACHES),
        (changed(b".pytest_cache/v/x"), path_classes.CACHES),
        (changed(b"logs/server.log"), path_classes.LOGS),
        (changed(b".venv/pyvenv.cfg"), path_classes.PLACES),
        (changed(b".venv/bin/pip"), path_classes.PLACES),
        (changed(b"node_modules/.package-lock.json"), path_classes.PLACES),
        (changed(b".venv/lib/python3.11/site-packages/click/core.py"), None),
        (Change(side(b"gone.txt", 1), None), None),
    ],
    ids=lambda value: value.path.decode() if isinstance(value, Change) else None,
)
def test_each_change_is_listed_or_grouped_separately(change: Change, sort: str | None) -> None:
    assert sort_of(change) == sort


def test_changes_explained_by_packages_are_grouped_by_directory() -> None:
    file = changed(b"web/node_modules/left-pad/index.js")
    assert sort_of(file, b"web/node_modules") == "web/node_modules/"
    assert sort_of(file, b"node_modules") is None, "no package explains this change, so it must be listed"


def test_groups_have_a_fixed_order() -> None:
    changes = [changed(b"a.log"), changed(b".mypy_cache/x"), changed(b"b", same=True, attributes=("owner",))]
    sorts = [why for why, _ in split_machine_differences(changes, lambda place: False).by_nature]
    assert sorts == [path_classes.OWNER, path_classes.CACHES, path_classes.LOGS]
