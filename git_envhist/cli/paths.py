"""Paths as git prints them: in quotes where a letter would mislead a reader (pure)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime

from git_envhist.cli.command import Session
from git_envhist.cli.subcommands import SUBCOMMANDS, SYNONYMS
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.history.revisions import why_not_a_name
from git_envhist.history.timeline import is_id
from git_envhist.history.times import parse_time_span
from git_envhist.lazy import pattern
from git_envhist.model import Snapshot
from git_envhist.snapshots.names import stored_path

# What a moment must not be called, because the word already means something where a revision stands.


def refuse_name(name: str) -> None:
    """Refuse a name that could not be typed as a revision, or that is a subcommand."""
    reason = why_not_a_name(name)
    if reason is None and (name in SUBCOMMANDS or name in SYNONYMS):
        reason = "a subcommand is called so"
    if reason is None and parse_time_span(name, datetime.now(UTC)) is not None:
        reason = "it reads as a time"
    if reason is None and is_id(name):
        reason = "it reads as the id of a snapshot"
    if reason is None and _holds_secret(name):
        raise Refused("not usable as a name: there is a secret in it", hint="names are stored in the clear")
    if reason is not None:
        raise Refused(
            f"not usable as a name: '{name}' ({reason})", hint="take another, like 'before-refactor'"
        )


def _holds_secret(name: str) -> bool:
    from git_envhist.secrets.masking import mask_secrets  # loaded late: most names are told apart without it

    plain = name.encode("utf-8", "surrogateescape")
    return mask_secrets(plain) != plain


SHORT = {
    7: b"\\a",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    11: b"\\v",
    12: b"\\f",
    13: b"\\r",
    34: b'\\"',
    92: b"\\\\",
}
ALWAYS = pattern(rb'[\x00-\x1f"\\\x7f]')
ALL = pattern(rb'[\x00-\x1f"\\\x7f-\xff]')
# Control characters beyond ASCII, spelled in UTF-8: `core.quotePath=false` lets letters through, but nothing that
# commands a terminal.
COMMANDING = pattern(rb"\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def quoted(path: bytes, *, quote_all: bool) -> bytes:
    """The path, in git's quotes if it holds what wants them; `quote_all` is core.quotePath."""
    wanting = ALL if quote_all or COMMANDING.search(path) or not _is_text(path) else ALWAYS
    if wanting.search(path) is None:
        return path
    return b'"' + wanting.sub(_escape, path) + b'"'


def all_plain(paths: Sequence[bytes]) -> bool:
    """Whether git quotes none of them, whatever is configured."""
    return ALL.search(b"/".join(paths)) is None


def _escape(found: re.Match[bytes]) -> bytes:
    value = found[0][0]
    return SHORT.get(value) or b"\\%03o" % value


def _is_text(path: bytes) -> bool:
    if path.isascii():
        return True
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# Accept paths after a revision without `--`, as git does, if each exists now or in the snapshot.


def take_paths(session: Session, words: Sequence[str], snapshot: Snapshot, usage: str) -> None:
    """Make the words after a revision the pathspecs; `UsageError` if one exists neither now nor in the snapshot."""
    for word in words:
        if session.paths is not None or not (os.path.lexists(word) or _holds(session, snapshot, word)):
            raise UsageError(
                f"one word too many: '{word}'", hint=f"paths stand behind '--': {usage} -- <path>"
            )
    session.paths = tuple(words)


def _holds(session: Session, snapshot: Snapshot, word: str) -> bool:
    try:
        path = session.history.environment_path(os.fsencode(word))
    except EnvhistError:
        return False
    git = session.history.repository.git
    name = b"%b:%b" % (snapshot.commit.encode("ascii"), stored_path(path))
    if git.try_run("cat-file", "-e", name).status == 0:
        return True
    # A tree of git holds no empty directory, no socket and no pipe: the manifest does.
    with closing(session.history.reader(snapshot)) as files:
        return files.entry(path) is not None


# The judgement of a path to write to, for commands that an agent runs: see `consent.py`.


def refuse_place(session: Session, path: str | None) -> None:
    """Refuse to write to a path if no person is present and an agent may not write there."""
    from git_envhist.consent import is_unattended  # loaded late: only a fork needs it

    history = session.history
    if path is None or not is_unattended(history.environ):
        return
    from git_envhist import consent  # loaded late: a person is present, mostly

    consent.refuse_place(path, history.repository, history.environ)
