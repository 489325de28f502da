"""`git envlog init`: history for a plain directory; where git has a repository there is nothing to set up."""

from __future__ import annotations

from git_envhist.api import EnvHistory
from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.parser import argument, force, option
from git_envhist.text import escape, escape_invalid


@command("init", "git envlog init [--new | --adopt=<history>] [<directory>]", writes=True)
@argument("directory")
@force("allow your home directory or /, or a used history")
@option("--new", "anew", is_flag=True, help="create a new history; keep the old one")
@option(
    "--adopt",
    metavar="<history>",
    help="continue this history (name, repository or old path)",
)
def init(session: Session, directory: str | None, force: bool, anew: bool, adopt: str | None) -> None:
    """Create a history for a directory without git. It is stored outside the directory."""
    session.no_paths()
    history = EnvHistory.init(
        directory or ".", force=force, new=anew, adopt=adopt, workers="fork", one_command=True
    )
    session.done("the history is begun")
    for remark in history.warnings:
        warn(remark)
    if session.json:
        session.print_json(_as_json(history))
        return
    _tell(session, history)


def _tell(session: Session, history: EnvHistory) -> None:
    repository = history.repository
    if not repository.plain:
        session.line(
            f"nothing to set up: '{escape(repository.root)}' is a git repository, which holds its own history"
        )
        return
    session.line(f"the history of '{escape(repository.root)}' is kept in '{escape(repository.git_dir)}'")
    count = len(history.log())
    if count:
        session.line(f"it holds {count:,} snapshot{'s' if count > 1 else ''}: git envlog")
    else:
        session.line("its first snapshot: git envlog capture")


def _as_json(history: EnvHistory) -> dict[str, object]:
    return {
        "schema": 1,
        "root": escape_invalid(history.repository.root),
        "repository": escape_invalid(history.repository.git_dir),
        "plain": history.repository.plain,
        "timeline": history.timeline,
        "snapshots": len(history.log()),
    }
