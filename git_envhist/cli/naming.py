"""What a moment must not be called, because the word already means something where a revision stands."""

from __future__ import annotations

from datetime import UTC, datetime

from git_envhist.cli.subcommands import MEANT, SUBCOMMANDS
from git_envhist.errors import Refused
from git_envhist.history.revisions import why_not_a_name
from git_envhist.history.timeline import is_id
from git_envhist.history.times import parse_moment


def refuse_name(name: str) -> None:
    """Refuse a name that could not be typed as a revision, or that is a subcommand."""
    reason = why_not_a_name(name)
    if reason is None and (name in SUBCOMMANDS or name in MEANT):
        reason = "a subcommand is called so"
    if reason is None and parse_moment(name, datetime.now(UTC)) is not None:
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
    from git_envhist.capture.masking import mask_secrets  # loaded late: most names are told apart without it

    plain = name.encode("utf-8", "surrogateescape")
    return mask_secrets(plain) != plain
