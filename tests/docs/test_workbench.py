"""docs/guide/workbench.md: its commands are run in order, and print what it shows."""

from __future__ import annotations

from tests.rules.source import CHECKOUT
from tests.support.documents import blocks, differs, run_commands, steps
from tests.support.repository import Repo

PAGE = CHECKOUT / "docs" / "guide" / "workbench.md"


def follows(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Return whether the shown lines occur in this order; a line of `…` alone matches any number of lines."""
    at = 0
    for line in shown:
        if line == "…":
            continue
        at = next((n for n in range(at, len(printed)) if differs((line,), printed[n]) is None), -1) + 1
        if not at:
            return False
    return True


def test_commands_of_the_page_print_the_shown_output(repo: Repo) -> None:
    wrapper = blocks(PAGE, "sh")[0]
    shown = [step for session in blocks(PAGE, "console") for step in steps(session)]
    # Flush at the end, as for any pipe.
    kept = {name: value for name, value in repo.env.items() if name != "PYTHONUNBUFFERED"}
    env = {**kept, "PATH": f"{repo.env['HOME']}/bin:{repo.env['PATH']}"}
    commands = [f"git config core.pager cat; {wrapper}", *(step.command for step in shown)]
    outcomes = run_commands(commands, repo.path, env)
    assert [outcome.status for outcome in outcomes] == [0] * len(commands)
    for step, outcome in zip(shown, outcomes[1:], strict=True):
        assert follows(step.shown, outcome.out.splitlines()), outcome
    assert repo.read("app.py") == b"print('hello')\n"
