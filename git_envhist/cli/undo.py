"""`git envlog undo` and `redo`: the same as `git envrestore --undo` and `--redo`."""

from __future__ import annotations

from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.options import argument, option
from git_envhist.cli.restore import step

DEFAULTS: dict[str, Any] = {
    "only": (),
    "keep_new": False,
    "keep_code": False,
    "head": False,
    "relocate": False,
    "foreign": False,
    "roots": False,
}


@command("undo", "git envlog undo [<number>]", writes=True)
@argument("number")
@option("-n", "--dry-run", is_flag=True, help="print the plan and change nothing")
@option("--plan", metavar="<id>", help="refuse unless it is still the plan that was printed with this id")
@option("-f", "--force", is_flag=True, help="override the refusals that name it")
@option("--services", is_flag=True, help="with the state of the services that are configured")
def undo(session: Session, number: str | None, **options: Any) -> int:
    """Goes to the newest earlier state that differs from what is here now, or so many back; that is saved first."""
    session.no_paths()
    return step(session, "undo", number, {**DEFAULTS, **options})


@command("redo", "git envlog redo [<number>]", writes=True)
@argument("number")
@option("-n", "--dry-run", is_flag=True, help="print the plan and change nothing")
@option("--plan", metavar="<id>", help="refuse unless it is still the plan that was printed with this id")
@option("-f", "--force", is_flag=True, help="override the refusals that name it")
@option("--services", is_flag=True, help="with the state of the services that are configured")
def redo(session: Session, number: str | None, **options: Any) -> int:
    """Goes forth again after an undo, as long as nothing new has come."""
    session.no_paths()
    return step(session, "redo", number, {**DEFAULTS, **options})
