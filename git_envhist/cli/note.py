"""`git envlog note`: add a note to a snapshot."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.options import argument, option
from git_envhist.cli.titles import format_context
from git_envhist.errors import EnvhistError, UsageError

USAGE = "git envlog note [<rev>] <text>…"
NEWEST = "@"
SHORTEST_ID = 4


@command("note", "git envlog note [<rev>] (<text>… | -m <text>)", writes=True)
@argument("words", many=True)
@option("-m", "--message", "texts", metavar="<text>", multiple=True, help="text of the note; repeatable")
def note(session: Session, words: tuple[str, ...], texts: tuple[str, ...]) -> None:
    """Adds a note to a snapshot (the newest by default); 'git envlog show' prints it."""
    session.no_paths()
    if texts:
        if len(words) > 1:
            raise UsageError(f"one word too many: '{words[1]}'", hint="git envlog note [<rev>] -m <text>")
        revision, text = "".join(words) or NEWEST, "\n\n".join(texts)
    else:
        revision, text = _split(session, words)
    if not text.strip():
        raise UsageError("no text given", hint=USAGE)
    snapshot = session.history.note(text, revision)
    session.done("the note is kept")
    if session.json:
        session.print_json({"schema": 1, "id": snapshot.id, "note": text})
    else:
        intent = format_context(session.history).words(snapshot)
        session.line(f"noted on {snapshot.id[:7]}: {intent}")


def _split(session: Session, words: tuple[str, ...]) -> tuple[str, str]:
    """Return the revision and the text: a first word is a revision only if it is hardly a word of the text."""
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
