"""`git envlog init`: create a history for a plain directory; a git repository needs no setup."""

from __future__ import annotations

from git_envhist.api import EnvHistory
from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.parser import argument, force, option
from git_envhist.printable_text import escape, escape_invalid


@command("init", "git envlog init [--new | --adopt=<history>] [<directory>]", writes=True)
@argument("directory")
@force("allow your home directory, / or a history in use")
@option("--new", is_flag=True, help="create a new history; keep the old one")
@option(
    "--adopt",
    metavar="<history>",
    help="continue this history (name, repository or old path)",
)
def init(session: Session, directory: str | None, force: bool, new: bool, adopt: str | None) -> None:
    """Create a history for a directory without git. It is stored outside the directory."""
    session.no_paths()
    history = EnvHistory.init(
        directory or ".", force=force, new=new, adopt=adopt, workers="fork", one_command=True
    )
    session.done("the history is created")
    for remark in history.warnings:
        warn(remark)
    if session.json:
        session.print_json(_as_json(history))
        return
    _print_result(session, history)


def _print_result(session: Session, history: EnvHistory) -> None:
    repository = history.repository
    if not repository.plain:
        session.line(
            f"nothing to set up: '{escape(repository.root)}' is a git repository; its history is stored there"
        )
        return
    session.line(f"the history of '{escape(repository.root)}' is stored in '{escape(repository.git_dir)}'")
    count = len(history.log())
    if count:
        session.line(f"it contains {count:,} snapshot{'s' if count > 1 else ''}: git envlog")
    else:
        session.line("take the first snapshot: git envlog capture")


def _as_json(history: EnvHistory) -> dict[str, object]:
    return {
        "schema": 1,
        "root": escape_invalid(history.repository.root),
        "repository": escape_invalid(history.repository.git_dir),
        "plain": history.repository.plain,
        "timeline": history.timeline,
        "snapshots": len(history.log()),
    }
