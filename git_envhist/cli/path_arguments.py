"""Names and paths: which names are allowed, quoting as git prints paths, and pathspecs without `--`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime

from git_envhist.cli.command import Session
from git_envhist.cli.subcommands import SUBCOMMANDS, SYNONYMS
from git_envhist.errors import AmbiguousRevision, EnvhistError, Refused, UsageError
from git_envhist.history.resolve import resolve_range
from git_envhist.history.revisions import why_not_a_name
from git_envhist.history.timeline import is_id
from git_envhist.history.times import parse_time_span
from git_envhist.lazy import pattern
from git_envhist.model import Snapshot
from git_envhist.snapshots.names import stored_path

# Names that are refused because they already mean something as a revision.


def refuse_name(name: str) -> None:
    """Refuse a name that cannot be typed as a revision, or that is a subcommand."""
    reason = why_not_a_name(name)
    if reason is None and (name in SUBCOMMANDS or name in SYNONYMS):
        reason = "it is a subcommand"
    if reason is None and parse_time_span(name, datetime.now(UTC)) is not None:
        reason = "it looks like a time"
    if reason is None and is_id(name):
        reason = "it looks like a snapshot id"
    if reason is None and _holds_secret(name):
        raise Refused("not usable as a name: it contains a secret", hint="names are stored unencrypted")
    if reason is not None:
        raise Refused(
            f"not usable as a name: '{name}' ({reason})", hint="use another name, e.g. 'before-refactor'"
        )


def _holds_secret(name: str) -> bool:
    from git_envhist.secrets.masking import (
        mask_secrets,
    )  # loaded late: most refused names need no check for secrets

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
# Control characters beyond ASCII, in UTF-8: `core.quotePath=false` allows letters, but nothing that controls a
# terminal.
COMMANDING = pattern(rb"\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def quoted(path: bytes, *, quote_all: bool) -> bytes:
    """Return the path, in git's quotes if it needs them; `quote_all` is core.quotePath."""
    wanting = ALL if quote_all or COMMANDING.search(path) or not _is_text(path) else ALWAYS
    if wanting.search(path) is None:
        return path
    return b'"' + wanting.sub(_escape, path) + b'"'


def all_plain(paths: Sequence[bytes]) -> bool:
    """Return whether git prints all of these paths without quotes under any configuration."""
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
    """Make the words after a revision the pathspecs; raise UsageError if one exists neither now nor in the snapshot."""
    for word in words:
        if session.paths is not None or not (os.path.lexists(word) or _holds(session, snapshot, word)):
            raise UsageError(f"unexpected argument: '{word}'", hint=f"paths go after '--': {usage} -- <path>")
    session.paths = tuple(words)


def split_operands(session: Session, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the revisions of some words, and make the paths after them the pathspecs.

    As for git, a word is a path if it exists and is no revision. Raise `UsageError` for a word that is both.
    """
    is_path = session.history.catalog.is_path
    number = next((at for at, word in enumerate(words) if is_path(word)), len(words))
    for word in words[: number + 1]:
        if is_path(word) and _is_revision(session, word):
            raise UsageError(
                f"ambiguous argument '{word}': both a snapshot and a path",
                hint=f"put '--' between them: git envlog {word} -- or git envlog -- {word}",
            )
    for word in words[number:]:
        if not is_path(word):
            raise UsageError(
                f"no such path: '{word}'", hint="paths of the past go after '--': git envlog -- <path>"
            )
    session.paths = words[number:] or None
    return words[:number]


def _is_revision(session: Session, word: str) -> bool:
    try:
        resolve_range(word, session.history.catalog, session.history.now)
    except AmbiguousRevision:
        return True
    except EnvhistError:
        return False
    return True


def _holds(session: Session, snapshot: Snapshot, word: str) -> bool:
    try:
        path = session.history.environment_path(os.fsencode(word))
    except EnvhistError:
        return False
    git = session.history.repository.git
    name = b"%b:%b" % (snapshot.commit.encode("ascii"), stored_path(path))
    if git.try_run("cat-file", "-e", name).status == 0:
        return True
    # A git tree contains no empty directory, socket or pipe; the manifest does.
    with closing(session.history.reader(snapshot)) as files:
        return files.entry(path) is not None


# Refuse paths that an agent may not write to; see `consent.py`.


def refuse_place(session: Session, path: str | None) -> None:
    """Refuse to write to a path if no person is present and an agent may not write there."""
    from git_envhist.consent import is_unattended  # loaded late: only a fork needs it

    history = session.history
    if path is None or not is_unattended(history.environ):
        return
    from git_envhist import consent  # loaded late: mostly a person is present

    consent.refuse_place(path, history.repository, history.environ)
