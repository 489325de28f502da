"""`git envlog key recipients` and `git envlog key identity`: public keys that open what this repository seals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from git_envhist.capturing.attendance import is_person
from git_envhist.cli.command import Session
from git_envhist.cli.failure import warn
from git_envhist.cli.terminal import escape
from git_envhist.cli.words import count
from git_envhist.core import identities_of
from git_envhist.errors import EnvhistError, Refused, SealingError, UsageError

if TYPE_CHECKING:
    from git_envhist.store.keys import KeyRing

USAGE = "git envlog key recipients [list] | add <public key | file | ->... | remove <public key | comment>... | reset"
KEYS = ("age1", "AGE1", "ssh-")
"""The beginnings of public keys."""
LARGEST_FILE = 1 << 20


class CannotReadRecipients(EnvhistError):
    """The file that public keys are to be read from cannot be read."""

    code = "cannot-read"
    usual_hint = "name a file with one public key per line, e.g. ~/.ssh/id_ed25519.pub"


def show_or_change(session: Session, ring: KeyRing, words: Sequence[str]) -> None:
    """Run one of the actions on the list of recipients."""
    action, *rest = words or ["list"]
    if action == "list" and not rest:
        _list(session, ring.recipients())
        return
    if action not in ("add", "remove", "reset") or bool(rest) == (action == "reset"):
        raise UsageError(f"'key recipients' does not understand: '{' '.join(words)}'", hint=USAGE)
    if not is_person(session.history.environ):
        raise Refused("recipients are changed by a person only", hint="run it in a terminal of yours")
    if action == "add":
        _add(session, ring, rest)
    elif action == "remove":
        _remove(session, ring, rest)
    else:
        ring.set_recipients(lambda _: (), reset=True)
        session.done("the list is empty")
        _list(session, ())


def show_identity(session: Session) -> None:
    """Print the public key of this user; make the private one if there is none."""
    identities = identities_of(session.history.settings, session.history.environ)
    first = identities.first()
    if first is None:
        if os.path.lexists(identities.own):
            raise SealingError("; ".join(identities.problems) or f"cannot read '{identities.own}'")
        first = identities.make()
        session.done("the private key is made")
        warn(f"made a private key: '{escape(identities.own)}'; what is sealed for it is lost without it")
    if session.json:
        session.print_json({"schema": 1, "recipient": first.recipient.text})
        return
    session.line(first.recipient.text)


def _list(session: Session, lines: Iterable[str]) -> None:
    if session.json:
        session.print_json([_as_json(line) for line in lines])
        return
    for line in lines:
        session.line(escape(line))
    if not lines:
        session.line("no recipients: the key of this repository alone opens what it seals")


def _as_json(line: str) -> dict[str, object]:
    from git_envhist.capture.agekeys import read_recipient  # loaded late: few name a recipient

    recipient, comment = read_recipient(line)
    return {"schema": 1, "recipient": recipient.text, "comment": comment}


def _add(session: Session, ring: KeyRing, words: Sequence[str]) -> None:
    from git_envhist.capture.agekeys import read_recipient  # loaded late: likewise

    new = {}
    for line in _lines(words):
        recipient, comment = read_recipient(line)
        # A comment is one line of the list, whatever ends a line in it.
        new[recipient.text] = " ".join([recipient.text, *comment.split()])
    ring.set_recipients(lambda old: tuple({**{_key_of(line): line for line in old}, **new}.values()))
    session.done("the list is written")
    if session.json:
        _list(session, ring.recipients())
        return
    for line in new.values():
        session.line(f"added {escape(line)}")
    session.line(
        f"the next push wraps the keys of this repository for {count(len(ring.recipients()), 'recipient')}: "
        "they open everything that these keys sealed, and sign nothing"
    )


def _remove(session: Session, ring: KeyRing, words: Sequence[str]) -> None:
    lines = ring.recipients()
    wanted = {word: [line for line in lines if _is_meant(line, word)] for word in _names(words)}
    for word, found in wanted.items():
        if not found:
            raise NoRecipient(f"no recipient: '{word}'")
    gone = {line for found in wanted.values() for line in found}
    ring.set_recipients(lambda old: tuple(line for line in old if line not in gone))
    session.done("the list is written")
    if session.json:
        _list(session, ring.recipients())
    for line in gone if not session.json else ():
        session.line(f"removed {escape(line)}")
    warn(
        "a removed recipient still opens what these keys sealed, before and from now on: "
        "'git envlog key new --reseal' makes a new key and seals everything with it; then push"
    )


class NoRecipient(EnvhistError):
    """A word that is no recipient of this repository."""

    code = "no-recipient"
    usual_hint = "'git envlog key recipients' lists them"


def _names(words: Sequence[str]) -> list[str]:
    """Return what is to be removed: a public key may be typed in the words of its line."""
    return [" ".join(words[:2])] if words[0] == "ssh-ed25519" and len(words) > 1 else list(words)


def _is_meant(line: str, word: str) -> bool:
    key = _key_of(line)
    return word == key or word == line.removeprefix(key).strip()


def _key_of(line: str) -> str:
    from git_envhist.capture.agekeys import read_recipient  # loaded late: likewise

    return read_recipient(line)[0].text


def _lines(words: Sequence[str]) -> list[str]:
    """Return the lines with public keys that some words give: themselves, or files of them."""
    lines: list[str] = []
    for word in words:
        if word.startswith(KEYS):
            lines.append(word)
        elif lines and words[0].startswith(KEYS):
            lines[-1] += f" {word}"  # the second word of an SSH key, or of a comment
        else:
            lines += _lines_of_file(word)
    return lines


def _lines_of_file(word: str) -> list[str]:
    try:
        if word == "-":
            raw = sys.stdin.buffer.read(LARGEST_FILE)
        else:
            with open(word, "rb") as file:
                raw = file.read(LARGEST_FILE)
    except OSError as failure:
        raise CannotReadRecipients(f"cannot read '{word}': {failure.strerror}") from failure
    lines = [line.strip() for line in raw.decode("utf-8", "replace").splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise CannotReadRecipients(f"no public key is in '{word}'")
    return found
