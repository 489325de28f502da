"""The class of a path."""

from __future__ import annotations

import pytest

from git_envhist.diff.path_classes import class_of, database_of


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"node_modules/left-pad/index.js", "packages"),
        (b"web/node_modules", "packages"),
        (b".venv/lib/python3.11/site-packages/flask/app.py", "packages"),
        (b"node_modules/dotenv/.env", "packages"),
        (b".env.local", "env"),
        (b"config/prod.env", "env"),
        (b"data/app.db", "databases"),
        (b"data/APP.SQLite3-wal", "databases"),
        (b"app.db-journal", "databases"),
        (b"src/app.py", "files"),
        (b"venv.py", "files"),
        (b"x-wal", "files"),
    ],
)
def test_each_path_has_one_class(path: bytes, expected: str) -> None:
    assert class_of(path) == expected


def test_a_sidecar_belongs_to_its_database() -> None:
    assert database_of(b"app.db-wal") == b"app.db"
    assert database_of(b"app.db") == b"app.db"
    assert database_of(b"app.dbx") is None
