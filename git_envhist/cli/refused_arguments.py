"""Names and paths that a command refuses."""

from __future__ import annotations

from datetime import UTC, datetime

from git_envhist.cli.command import Session
from git_envhist.cli.subcommands import SUBCOMMANDS, SYNONYMS
from git_envhist.errors import Refused
from git_envhist.history.revisions import why_not_a_name
from git_envhist.history.timeline import is_id
from git_envhist.history.times import parse_time_span

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


# Refuse paths that an agent may not write to; see `consent.py`.


def refuse_place(session: Session, path: str | None) -> None:
    """Refuse to write to a path if no person is present and an agent may not write there."""
    from git_envhist.consent import is_unattended  # loaded late: only a fork needs it

    history = session.history
    if path is None or not is_unattended(history.environ):
        return
    from git_envhist import consent  # loaded late: mostly a person is present

    consent.refuse_place(path, history.repository, history.environ)
