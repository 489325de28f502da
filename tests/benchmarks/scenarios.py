"""What changes in the environment between two captures."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.benchmarks.corpus import walk

PAGES = 50


class Editor:
    """Changes the environment the way programs do; never the same change twice."""

    def __init__(self, top: Path, runs: tuple[int, int]) -> None:
        self._top = top
        self._runs = runs
        # Text, not what is large: an edit should cost what noticing it costs.
        self._files = [
            os.path.join(place, name)
            for place, name in walk(top)
            if name.endswith((".js", ".py", ".ts", ".json", ".map", ".pyc")) and ".git/" not in place
        ]
        self._rng = random.Random("edits")
        self._round = 0

    @property
    def many(self) -> int:
        """How many files the large edit changes."""
        return self._runs[0] * self._runs[1]

    def change_few(self) -> None:
        """Ten files, anywhere."""
        self._round += 1
        for path in self._rng.sample(self._files, 10):
            self._rewrite(path)

    def change_many(self) -> None:
        """Runs of neighbours, as an upgrade of some packages changes them."""
        self._round += 1
        count, length = self._runs
        stride = len(self._files) // count
        for number in range(count):
            first = number * stride + self._rng.randrange(stride - length)
            for path in self._files[first : first + length]:
                self._rewrite(path)

    def change_pages(self) -> None:
        """Rows all over the database, each on a page of its own, through SQLite."""
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
