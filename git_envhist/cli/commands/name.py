"""`git envlog name` and `note`: names that can be used as revisions, and notes."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.parser import argument, option
from git_envhist.cli.refused_arguments import refuse_name
from git_envhist.cli.terminal import pad, width
from git_envhist.cli.views.log import format_context
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.history.timeline import by_name
from git_envhist.printable_text import escape


@command("name", "git envlog name [<name> [<rev>] | -d <name>]", writes=True)
@argument("name")
@argument("revision")
@option("-d", "--delete", "removed", metavar="<name>", help="remove this name; the snapshot stays")
def name(session: Session, name: str | None, revision: str | None, removed: str | None) -> None:
    """Name a snapshot (default: the newest), or remove a name. Without arguments, list the names."""
    session.no_paths()
    if removed is not None:
        if name is not None:
            raise UsageError("-d takes one name and nothing else", hint="git envlog name -d <name>")
        _take_away(session, removed)
        return
    if name is None:
        _list(session)
        return
    refuse_name(name)
    history = session.history
    target = history.resolve("@" if revision is None else revision)
    line = history.catalog.timeline(target.timeline) or history.catalog.own
    before = next((spot.snapshot.id for spot in by_name(line, name) if spot.snapshot.id != target.id), None)
    snapshot = history.name(name, target)
    session.done("the snapshot is named")
    if session.json:
        value = {"schema": 1, "name": name, "id": snapshot.id, "removed": False, "moved_from": before}
        session.print_json(value)
    else:
        moved = f" (moved from {before[:7]})" if before else ""
        words = format_context(history).words(snapshot)
        session.line(f"{snapshot.id[:7]} is named '{escape(name)}'{moved}: {words}")


def _list(session: Session) -> None:
    named = [(name, one) for one in session.history.catalog.own.snapshots for name in sorted(one.names)]
    if session.json:
        session.print_json({"schema": 1, "names": [{"name": name, "id": one.id} for name, one in named]})
        return
    context = format_context(session.history)
    widest = max((width(escape(name)) for name, _ in named), default=0)
    for name, one in named:
        text = f"{one.id[:7]}  {context.time(one)}  {context.words(one)}"
        session.line(f"{pad(escape(name), widest)}  {text}")
    if not named:
        session.line("no names; name the newest snapshot: git envlog name <name>")


def _take_away(session: Session, name: str) -> None:
    snapshot = session.history.remove_name(name)
    session.done("the name is removed")
    if session.json:
        session.print_json(
            {"schema": 1, "name": name, "id": snapshot.id, "removed": True, "moved_from": None}
        )
    else:
        session.line(f"{snapshot.id[:7]} is no longer named '{escape(name)}'")


# `git envlog note`: add a note to a snapshot.

USAGE = "git envlog note [<rev>] <text>..."
NEWEST = "@"
SHORTEST_ID = 4


@command("note", "git envlog note [<rev>] (<text>... | -m <text>)", writes=True)
@argument("words", many=True)
@option("-m", "--message", "texts", metavar="<text>", multiple=True, help="the text of the note; repeatable")
def note(session: Session, words: tuple[str, ...], texts: tuple[str, ...]) -> None:
    """Add a note to a snapshot (default: the newest). 'git envlog show' prints it."""
    session.no_paths()
    if texts:
        if len(words) > 1:
            raise UsageError(f"unexpected argument: '{words[1]}'", hint="git envlog note [<rev>] -m <text>")
        revision, text = "".join(words) or NEWEST, "\n\n".join(texts)
    else:
        revision, text = _split(session, words)
    if not text.strip():
        raise UsageError("no text given", hint=USAGE)
    snapshot = session.history.note(text, revision)
    session.done("the note is added")
    if session.json:
        session.print_json({"schema": 1, "id": snapshot.id, "note": text})
    else:
        intent = format_context(session.history).words(snapshot)
        session.line(f"added a note to {snapshot.id[:7]}: {intent}")


def _split(session: Session, words: tuple[str, ...]) -> tuple[str, str]:
    """Return the revision and the text; the first word is a revision only if it cannot be part of the text."""
    if words and (words[0].startswith("@") or _is_id(session, words[0])):
        return words[0], " ".join(words[1:])
    return NEWEST, " ".join(words)


def _is_id(session: Session, word: str) -> bool:
    if len(word) < SHORTEST_ID or not set(word) <= set("0123456789abcdef"):
        return False
    try:
        return session.history.resolve(word).id.startswith(word)
    except EnvhistError:
        return False
