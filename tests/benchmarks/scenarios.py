"""Changes to the environment between two captures."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.benchmarks.corpus import walk

PAGES = 50


class Editor:
    """Change the environment like real programs, never the same way twice."""

    def __init__(self, top: Path, runs: tuple[int, int]) -> None:
        self._top = top
        self._runs = runs
        # Use text and no large files: an edit should cost as much as noticing it.
        self._files = [
            os.path.join(place, name)
            for place, name in walk(top)
            if name.endswith((".js", ".py", ".ts", ".json", ".map", ".pyc")) and ".git/" not in place
        ]
        self._rng = random.Random("edits")
        self._round = 0

    @property
    def many(self) -> int:
        """Return how many files the large edit changes."""
        return self._runs[0] * self._runs[1]

    def change_few(self) -> None:
        """Change ten files, anywhere."""
        self._round += 1
        for path in self._rng.sample(self._files, 10):
            self._rewrite(path)

    def change_many(self) -> None:
        """Change runs of neighbours, like an upgrade of some packages."""
        self._round += 1
        count, length = self._runs
        stride = len(self._files) // count
        for number in range(count):
            first = number * stride + self._rng.randrange(stride - length)
            for path in self._files[first : first + length]:
                self._rewrite(path)

    def change_pages(self) -> None:
        """Change rows all over the database through SQLite, each on its own page."""
        self._round += 1
        with closing(sqlite3.connect(self._top / "app.sqlite3")) as connection, connection:
            (rows,) = connection.execute("select max(id) from events").fetchone()
            chosen = [(self._rng.random(), row) for row in self._rng.sample(range(rows), PAGES)]
            connection.executemany("update events set weight = ? where id = ?", chosen)
        connection.close()

    def _rewrite(self, path: str) -> None:
        with open(path, "rb") as file:
            data = file.read()
        with open(f"{path}.new", "xb") as file:
            file.write(data + b"// change %d\n" % self._round)
        os.rename(f"{path}.new", path)
