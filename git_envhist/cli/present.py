"""`git envlog show now`: the live environment as a card of its own, and its files as they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.cli.dates import format_date
from git_envhist.cli.details import fact_lines
from git_envhist.cli.render import LABEL
from git_envhist.cli.terminal import escape
from git_envhist.errors import EnvhistError, SnapshotNotFound
from git_envhist.facts import kinds
from git_envhist.history.diff import count
from git_envhist.history.facts import without_secrets
from git_envhist.history.summary import summarize
from git_envhist.history.timeline import subject
from git_envhist.model import EnvPath, Snapshot

if TYPE_CHECKING:
    from git_envhist.cli.command import Session

NOW = "now"


class FileUnreadable(EnvhistError):
    """The file cannot be read where it stands."""

    code = "cannot-read"
    usual_hint = "what the newest moment holds of it: git envlog show @ -- <path>"


def show_now(session: Session, date: str | None) -> None:
    """Tell what has changed since the newest snapshot."""
    newest = session.history.resolve("@")
    comparison = session.history.diff(newest, NOW)
    changes, facts = comparison.files, comparison.facts
    counts = count(changes)
    if session.json:
        from git_envhist.cli.jsonform import (  # loaded late: only --json needs it
            SCHEMA,
            changed_json,
            fact_json,
            moment,
        )

        changed = changed_json(counts, changes)
        at = moment(session.history.now)
        timeline = session.history.timeline
        session.print_json(
            {
                "schema": SCHEMA,
                "id": None,
                "timeline": timeline,
                "at": at,
                "since": newest.id,
                "env_changed": changed,
                "story": [fact_json(fact) for fact in without_secrets(facts)],
            }
        )
        return
    fields = [
        ("Timeline", session.history.timeline or ""),
        ("Date", format_date(session.history.now, date or "default", session.history.now)),
        ("Newest", _newest(newest)),
        ("Story", summarize(facts, counts, kinds())),
    ]
    session.line(session.paint("id", "the environment now"))
    for label, value in fields:
        session.line(f"{label}:".ljust(LABEL) + escape(value))
    for line in fact_lines(session, facts):
        session.line(line)


def read_present(session: Session, path: EnvPath) -> bytes:
    """The bytes of a file as they are now."""
    place = _place_now(session, path)
    try:
        if os.path.islink(place):
            return os.readlink(place)
        with open(place, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise SnapshotNotFound(os.fsdecode(path), hint="there is no such file now") from None
    except OSError as failure:
        raise FileUnreadable(f"cannot read '{os.fsdecode(path)}': {failure.strerror}") from failure


def _place_now(session: Session, path: EnvPath) -> bytes:
    top = os.fsencode(session.history.repository.root)
    name, further, below = path.partition(b"://")
    root = dict(session.history.settings.roots).get(os.fsdecode(name)) if further else None
    if root is None:
        return os.path.join(top, path)
    return os.path.join(top, os.fsencode(os.path.expanduser(root)), below)


def _newest(snapshot: Snapshot) -> str:
    return f"{snapshot.id} {subject(snapshot.intent)}"
