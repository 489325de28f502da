"""Asks our own programs: what they print is what is shown, and what they refuse is refused here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from git_envhist.ourselves import start_words

FIELDS = ("%H", "%h", "%(time)", "%(verdict)", "%s", "%(name)", "%(story)", "%(trigger)")
TEMPLATE = "%x00".join(FIELDS) + "%x00"
NO_PAGER = {"GIT_PAGER_IN_USE": "true", "GIT_PAGER": "cat"}
"""A program that writes to us writes to nobody's pager."""


class Row(NamedTuple):
    """A moment, as the list has it."""

    id: str
    short: str
    time: str
    verdict: str
    intent: str
    name: str
    story: str
    trigger: str


class Answer(NamedTuple):
    """What a program said, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both, in the order in which a terminal has them at the end."""
        return "\n".join(part.rstrip("\n") for part in (self.out, self.err) if part.strip())


def ask(program: str, *words: str, columns: int = 80) -> Answer:
    """Run a program of ours to its end."""
    done = subprocess.run(
        [*start_words(program), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **NO_PAGER, "COLUMNS": str(columns)},
        check=False,
        # Ctrl-C at the terminal is ours to hear: what is under way is finished.
        start_new_session=True,
    )
    return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def rows(year: str) -> tuple[list[Row], Answer]:
    """The moments of the timeline, newest first, and how it went; the year that is said of none is this one."""
    answer = ask("envlog", "--no-fold", "-z", f"--format={TEMPLATE}")
    found = [row._replace(time=row.time.removeprefix(f"{year}-")) for row in read_rows(answer.out)]
    return found, answer


def read_rows(text: str) -> list[Row]:
    """The rows that the list prints, each field ended by NUL, each record by one more."""
    fields = text.split("\0")
    width = len(FIELDS) + 1
    records = (fields[at : at + width - 1] for at in range(0, len(fields) - width + 1, width))
    return [Row(*(field.replace("\n", " ") for field in record)) for record in records]


def plan_of(*words: str) -> tuple[Answer, str | None]:
    """What going somewhere would do, and under which id that plan can be asked for; None where it is refused."""
    shown = ask("envrestore", "--dry-run", "--color=always", *words)
    told = ask("envrestore", "--dry-run", "--json", *words)
    return shown, _plan_id(told) if shown.status == told.status == 0 else None


def _plan_id(answer: Answer) -> str | None:
    try:
        value = json.loads(answer.out)
    except ValueError:
        return None
    found = value.get("plan_id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def fits(row: Row, words: Sequence[str]) -> bool:
    """Whether a moment is told with all of some words, in whatever case."""
    hay = "\n".join(row).lower()
    return all(word.lower() in hay for word in words)
