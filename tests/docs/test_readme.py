"""Check the README: its commands run, its sessions are real, its links lead to files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.rules.source import CHECKOUT
from tests.support.documents import blocks, differs, mixed_ids, plain_environment, run_commands, steps

README = CHECKOUT / "README.md"
PAGES = [README, *sorted((CHECKOUT / "docs").rglob("*.md")), CHECKOUT / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\(([^)#\s]+)")


def test_readme_opens_with_one_sentence_and_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    opening = re.match(r"# git-envhist\n\n([^`]+)\n\n```sh\n[^\n]+\n```\n\n```sh\n[^\n]+\n```\n", text)
    assert opening is not None
    assert opening[1].count(". ") == 0
    assert len(blocks(README, "sh")) == 2


def test_readme_is_at_most_200_lines() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("number", [1, 2])
def test_ci_runs_the_two_commands_as_written(number: int) -> None:
    done = subprocess.run(
        ["sh", ".ci/readme", str(number)], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout == blocks(README, "sh")[number - 1]
    run = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"$(sh .ci/readme {number})" in run
    assert run.count('bash -euc "$first_command"') == 1
    assert run.count('bash -euc "$second_command"') == 2


def test_sessions_show_the_real_output(tmp_path: Path, hermetic: Path) -> None:
    shown = [step for block in blocks(README, "console") for step in steps(block)]
    assert shown
    outcomes = run_commands([step.command for step in shown], tmp_path, plain_environment(os.environ))
    for step, outcome in zip(shown, outcomes, strict=True):
        assert outcome.status in (0, 1), outcome.out
        assert differs(tuple(line for line in step.shown if line), _without_blank(outcome.out)) is None
    pairs = [
        (tuple(line for line in step.shown if line), _without_blank(outcome.out))
        for step, outcome in zip(shown, outcomes, strict=True)
    ]
    assert not mixed_ids(pairs)


def _without_blank(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_files_named_by_a_page_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:docs|tests|git_envhist|hooks|\.ci)/[\w./-]*)`", page.read_text(encoding="utf-8")
    )
    assert not [name for name in named if not (CHECKOUT / name).exists()]
