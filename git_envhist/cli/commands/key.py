"""`git envlog key`: list, create, export and import the keys that seal secret files; manage recipients."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.cli.formats import count
from git_envhist.cli.parser import argument, option
from git_envhist.consent import is_person
from git_envhist.context import identities_of
from git_envhist.errors import EnvhistError, FileUnreadable, Refused, SealingError, UsageError
from git_envhist.printable_text import escape, escape_invalid

if TYPE_CHECKING:
    from git_envhist.retention.reseal import ResealResult
    from git_envhist.secrets.keys import Key, KeyRing


IMPORT_HINT = "git envlog key import <file>; - reads standard input"
MAX_TEXT = 1 << 16
USAGE = (
    "git envlog key show | new [--reseal] | export [--passphrase] [-o <file>] [<id>] | "
    "import [--use] [<file> | -] | recipients [add | remove | reset] [<public key>...] | identity"
)


class Passphrase:
    """A passphrase for a key, from a file or asked for on the terminal."""

    def __init__(self, file: str | None) -> None:
        self._file = file

    def ask(self, *, twice: bool = False) -> str:
        if self._file is not None:
            return _first_line(self._file)
        import getpass  # loaded late: only a terminal needs it

        try:
            words = _asked("passphrase: ")
            if twice and _asked("repeat the passphrase: ") != words:
                raise SealingError("the two passphrases differ")
        except (EOFError, getpass.GetPassWarning) as failure:
            raise UsageError(
                "there is no terminal to ask for the passphrase", hint="--passphrase-file <file>"
            ) from failure
        return words


def _asked(prompt: str) -> str:
    import getpass  # loaded late: only a terminal needs it
    import warnings  # loaded late: only a terminal needs it

    with warnings.catch_warnings():
        # If the echo cannot be turned off, the passphrase is not asked for.
        warnings.simplefilter("error", getpass.GetPassWarning)
        return getpass.getpass(prompt)


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.readline(MAX_TEXT)).rstrip("\r\n")
    except OSError as failure:
        raise FileUnreadable(f"cannot read '{path}': {failure.strerror}", hint=IMPORT_HINT) from failure


def wrapped_for(passphrase: str) -> Callable[[Key], str]:
    """Return a function that writes a key as a line that only the passphrase opens."""
    from git_envhist.secrets.key_text import (  # loaded late: only an export needs it
        SALT,
        wrap_with_passphrase,
    )

    return lambda key: wrap_with_passphrase(key.id, key.material, passphrase, os.urandom(SALT))


def _unwrapped(text: str, passphrase: Passphrase) -> str:
    from git_envhist.secrets.key_text import is_wrapped, unwrap  # loaded late: only an import needs it

    if not is_wrapped(text):
        return text
    from git_envhist.secrets.key_text import write_key_text  # loaded late: only an import needs it
    from git_envhist.secrets.keys import Key  # loaded late: only an import needs it

    return write_key_text(Key.of(unwrap(text, passphrase.ask())))


@command("key", USAGE)
@argument("action", default="show", metavar="show|new|export|import|recipients|identity")
@argument("subjects", many=True, metavar="[<id> | <file> | <public key>...]")
@option("--use", is_flag=True, help="import: seal new files with this key")
@option("--reseal", is_flag=True, help="new: seal stored secret files again")
@option("--passphrase", "asks", is_flag=True, help="export: protect the key with a passphrase")
@option(
    "--passphrase-file", "file", metavar="<file>", help="read the passphrase from the first line of this file"
)
@option("-o", "--output", "to", metavar="<file>", help="export: write to this new file, readable only by you")
def key(
    session: Session,
    action: str,
    subjects: tuple[str, ...],
    use: bool,
    reseal: bool,
    asks: bool,
    file: str | None,
    to: str | None,
) -> None:
    """Show, renew, export or import the keys that seal (encrypt) secret files."""
    session.no_paths()
    if use and action != "import":
        raise UsageError("--use can be used with 'import' only", hint=USAGE)
    if reseal and action != "new":
        raise UsageError("--reseal can be used with 'new' only", hint=USAGE)
    if to is not None and action != "export":
        raise UsageError("--output can be used with 'export' only", hint=USAGE)
    if (asks or file) and action not in ("export", "import"):
        raise UsageError("a passphrase can be used with 'export' and 'import' only", hint=USAGE)
    ring = session.history.keys
    _run(session, ring, action, subjects, (use, reseal, asks, file, to))
    for warning in ring.warnings:
        warn(warning)


def _run(
    session: Session,
    ring: KeyRing,
    action: str,
    subjects: tuple[str, ...],
    options: tuple[bool, bool, bool, str | None, str | None],
) -> None:
    if action == "recipients":
        run_recipients_action(session, ring, subjects)
        return
    use, reseal, asks, file, to = options
    subject = subjects[0] if subjects else None
    if len(subjects) > 1:
        raise UsageError(f"'key {action}' takes at most one argument: '{' '.join(subjects)}'", hint=USAGE)
    if action == "show" and subject is None:
        _show(session, ring)
    elif action == "new" and subject is None:
        _renew(session, ring, reseal)
    elif action == "export":
        _export(session, ring, subject, Passphrase(file) if asks or file else None, to)
    elif action == "import":
        _import(session, ring, subject, use, Passphrase(file))
    elif action == "identity" and subject is None:
        show_identity(session)
    else:
        known = action in ("show", "new", "identity")
        raise UsageError(
            f"'key' has no such action: '{subject if known else action}'",
            hint="use one of: show, new, export, import, recipients, identity; details: git envlog key -h",
        )


def _show(session: Session, ring: KeyRing) -> None:
    keys, current = ring.all(), ring.current_id()
    if session.json:
        session.print_json([_as_json(ring, each, current) for each in keys])
        return
    if not keys:
        session.line("no key yet: the first capture creates one")
        return
    for each in keys:
        session.line(f"{each.id}  {'seals new files' if each.id == current else 'opens older files'}")
        for path in _copies(ring, each):
            session.line(f"  {escape(path)}")
    session.line()
    session.line(
        "Back it up: git envlog key export -o <file on another machine>. Restore it with 'git envlog key import'."
    )


def _renew(session: Session, ring: KeyRing, reseal: bool) -> None:
    before = ring.current_id()
    made = ring.renew()
    session.done("the key is created")
    sealed = _reseal(session) if reseal else None
    if session.json:
        counts = {"snapshots": sealed.snapshots, "left": sealed.unopened} if sealed is not None else {}
        session.print_json({**_as_json(ring, made, made.id), **counts})
        return
    session.line(f"created the key {made.id}: it seals new files and signs new snapshots")
    if sealed is not None:
        session.line(f"sealed {count(sealed.snapshots, 'snapshot')} again; the next push sends them")
        if sealed.unopened:
            warn(f"{count(sealed.unopened, 'object')} unchanged: you have no key that opens them")
    elif before is not None:
        session.line(f"the key {before} still opens everything that it sealed")


def _reseal(session: Session) -> ResealResult:
    from git_envhist.retention.reseal import HistoryResealer  # loaded late: resealing is rare

    return HistoryResealer(session.history).reseal()


def _export(
    session: Session, ring: KeyRing, wanted: str | None, passphrase: Passphrase | None, to: str | None
) -> None:
    if not is_person(session.history.environ):
        raise Refused("hooks and agents may not export a key", hint="run it in your own terminal")
    key_id = wanted or ring.current_id()
    if key_id is None:
        raise SealingError("there is no key yet", hint="the first capture creates one")
    text = ring.export(key_id.lower(), wrapped_for(passphrase.ask(twice=True)) if passphrase else None)
    if to is not None:
        _write_private_file(to, text)
    if session.json:
        session.print_json({"schema": 1, "id": key_id.lower(), "text": text})
    elif to is not None:
        session.line(f"wrote the key {key_id.lower()} into '{escape(to)}', readable only by you")
    else:
        session.verbatim(text)
    if passphrase is None:
        warn("anyone with this line can open every secret file in the history: protect it like a password")


def _write_private_file(path: str, text: str) -> None:
    """Write a new file that is readable by its owner only from the start."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise Refused(f"the file exists: '{path}'", hint="give a new file name") from error
    except OSError as failure:
        raise SealingError(
            f"cannot write '{path}': {failure.strerror}", hint="give another path"
        ) from failure
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _import(session: Session, ring: KeyRing, source: str | None, use: bool, passphrase: Passphrase) -> None:
    if not is_person(session.history.environ):
        # Anyone who knows an imported key can open sealed files, and their snapshots are trusted.
        raise Refused("hooks and agents may not import a key", hint="run it in your own terminal")
    taken = ring.import_(_unwrapped(_read_text(source), passphrase))
    if use:
        ring.use(taken)
    session.done("the key is imported")
    current = ring.current_id()
    if session.json:
        session.print_json(_as_json(ring, taken, current))
    elif taken.id == current:
        session.line(f"imported the key {taken.id}: it opens the files that it sealed, and seals new files")
    else:
        session.line(
            f"imported the key {taken.id}: it opens the files that it sealed; new files are sealed with {current}"
        )


def _read_text(source: str | None) -> str:
    if source is None and os.isatty(0):
        print_error_line("paste the exported key, then press Ctrl-D:")
    try:
        if source in (None, "-"):
            raw = sys.stdin.buffer.read(MAX_TEXT)
        else:
            with open(source, "rb") as file:
                raw = file.read(MAX_TEXT)
    except OSError as failure:
        raise FileUnreadable(
            f"cannot read '{source or '-'}': {failure.strerror}", hint=IMPORT_HINT
        ) from failure
    return raw.decode("utf-8", "replace")


def _as_json(ring: KeyRing, each: Key, current: str | None) -> dict[str, object]:
    return {
        "schema": 1,
        "id": each.id,
        "current": each.id == current,
        "places": [*map(escape_invalid, _copies(ring, each))],
    }


def _copies(ring: KeyRing, each: Key) -> list[str]:
    return [place.path(each.id) for place in ring.places if each.id in place.ids()]


# `git envlog key recipients` and `identity`: public keys that open what this repository seals.

RECIPIENTS_USAGE = (
    "git envlog key recipients [list] | add <public key | file | ->... | "
    "remove <public key | comment>... | reset"
)
KEYS = ("age1", "AGE1", "ssh-")
"""The prefixes of public keys."""
MAX_FILE = 1 << 20
RECIPIENTS_HINT = "give a file with one public key per line, e.g. ~/.ssh/id_ed25519.pub"


def run_recipients_action(session: Session, ring: KeyRing, words: Sequence[str]) -> None:
    """Run one of the actions on the list of recipients."""
    action, *rest = words or ["list"]
    if action == "list" and not rest:
        _list(session, ring.recipients())
        return
    if action not in ("add", "remove", "reset") or bool(rest) == (action == "reset"):
        raise UsageError(f"'key recipients' has no such action: '{' '.join(words)}'", hint=RECIPIENTS_USAGE)
    if not is_person(session.history.environ):
        raise Refused("hooks and agents may not change recipients", hint="run it in your own terminal")
    if action == "add":
        _add(session, ring, rest)
    elif action == "remove":
        _remove(session, ring, rest)
    else:
        ring.set_recipients(lambda _: (), reset=True)
        session.done("the list of recipients is empty")
        _list(session, ())


def show_identity(session: Session) -> None:
    """Print the public key of this user; create the private key if there is none."""
    identities = identities_of(session.history.settings, session.history.environ)
    first = identities.first()
    if first is None:
        if os.path.lexists(identities.own):
            raise SealingError("; ".join(identities.problems) or f"cannot read '{identities.own}'")
        first = identities.make()
        session.done("the private key is created")
        warn(
            f"created a private key: '{escape(identities.own)}'; keep it, nothing else opens what is sealed for it"
        )
    if session.json:
        session.print_json({"schema": 1, "recipient": first.recipient.text})
        return
    session.line(first.recipient.text)


def _list(session: Session, lines: Iterable[str]) -> None:
    if session.json:
        session.print_json([_recipient_as_json(line) for line in lines])
        return
    for line in lines:
        session.line(escape(line))
    if not lines:
        session.line("no recipients: only the key of this repository opens what it seals")


def _recipient_as_json(line: str) -> dict[str, object]:
    from git_envhist.secrets.age_keys import read_recipient  # loaded late: recipients are rare

    recipient, comment = read_recipient(line)
    return {"schema": 1, "recipient": recipient.text, "comment": comment}


def _add(session: Session, ring: KeyRing, words: Sequence[str]) -> None:
    from git_envhist.secrets.age_keys import read_recipient  # loaded late: recipients are rare

    new = {}
    for line in _lines(words):
        recipient, comment = read_recipient(line)
        # A comment is one line of the list, even if it contains line breaks.
        new[recipient.text] = " ".join([recipient.text, *comment.split()])
    ring.set_recipients(lambda old: tuple({**{_key_of(line): line for line in old}, **new}.values()))
    session.done("the list of recipients is stored")
    if session.json:
        _list(session, ring.recipients())
        return
    for line in new.values():
        session.line(f"added {escape(line)}")
    session.line(
        f"the next push gives the keys of this repository to {count(len(ring.recipients()), 'recipient')}: "
        "they can open everything that these keys sealed, but cannot sign"
    )


def _remove(session: Session, ring: KeyRing, words: Sequence[str]) -> None:
    lines = ring.recipients()
    wanted = {word: [line for line in lines if _is_meant(line, word)] for word in _names(words)}
    for word, found in wanted.items():
        if not found:
            raise NoRecipient(f"no such recipient: '{word}'")
    gone = {line for found in wanted.values() for line in found}
    ring.set_recipients(lambda old: tuple(line for line in old if line not in gone))
    session.done("the list of recipients is stored")
    if session.json:
        _list(session, ring.recipients())
    for line in gone if not session.json else ():
        session.line(f"removed {escape(line)}")
    warn(
        "a removed recipient can still open what these keys seal: 'git envlog key new --reseal' creates a new key "
        "and seals everything with it; then push"
    )


class NoRecipient(EnvhistError):
    """A given recipient is not in the list."""

    code = "no-recipient"
    usual_hint = "'git envlog key recipients' lists them"


def _names(words: Sequence[str]) -> list[str]:
    """Return the keys to remove; an SSH key may be given in several words."""
    return [" ".join(words[:2])] if words[0] == "ssh-ed25519" and len(words) > 1 else list(words)


def _is_meant(line: str, word: str) -> bool:
    key = _key_of(line)
    return word == key or word == line.removeprefix(key).strip()


def _key_of(line: str) -> str:
    from git_envhist.secrets.age_keys import read_recipient  # loaded late: recipients are rare

    return read_recipient(line)[0].text


def _lines(words: Sequence[str]) -> list[str]:
    """Return the lines with public keys: the words themselves, or the lines of files that they name."""
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
            raw = sys.stdin.buffer.read(MAX_FILE)
        else:
            with open(word, "rb") as file:
                raw = file.read(MAX_FILE)
    except OSError as failure:
        raise FileUnreadable(f"cannot read '{word}': {failure.strerror}", hint=RECIPIENTS_HINT) from failure
    lines = [line.strip() for line in raw.decode("utf-8", "replace").splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise FileUnreadable(f"no public key is in '{word}'", hint=RECIPIENTS_HINT)
    return found
