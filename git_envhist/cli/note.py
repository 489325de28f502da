"""`git envlog note`: adds to the story of a moment later."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.options import argument, option
from git_envhist.cli.titles import looking_at
from git_envhist.errors import UsageError


@command("note", "git envlog note [<rev>] -m <text>", writes=True)
@argument("revision")
@option("-m", "--message", "texts", metavar="<text>", multiple=True, help="what is to be added; repeatable")
def note(session: Session, revision: str | None, texts: tuple[str, ...]) -> None:
    """Adds a note to a snapshot (the newest by default); 'git envlog show' tells it."""
    session.no_paths()
    text = "\n\n".join(texts)
    if not text.strip():
        raise UsageError("no note is given", hint="git envlog note [<rev>] -m <text>")
    snapshot = session.history.note(text, "@" if revision is None else revision)
    session.done("the note is kept")
    if session.json:
        session.print_json({"schema": 1, "id": snapshot.id, "note": text})
    else:
        words = looking_at(session.history, [snapshot]).words(snapshot)
        session.line(f"noted on {snapshot.id[:7]}: {words}")
