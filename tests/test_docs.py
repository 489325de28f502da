"""Every session that a page shows is typed, in the order of the page and in one shell, and compared with what comes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load
from git_envhist.model import Trigger
from tests.rules.built import config_keys
from tests.rules.source import CHECKOUT
from tests.support.documents import Step, blocks, differs, plain_environment, run_commands, steps

DOCS = CHECKOUT / "docs"
EVERY = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
# These need more around them than a shell; their own tests set that up.
ELSEWHERE = {
    "README.md": "tests/docs/test_readme.py",
    "compat.md": "tests/compat",
    "workbench.md": "tests/docs/test_workbench.py",
}
PAGES = [page for page in EVERY if blocks(page, "console") and page.name not in ELSEWHERE]
OURS = re.compile(r"`git (env(?:log|diff|restore))((?: [^`]*)?)`")
SUB = re.compile(r"`git env(?:log|hist) ([a-z]{3,})[ `]")
# What each class of readers is promised.
WANTED = (
    "tutorial", "agents", "recovery", "security", "format", "configuration", "performance", "comparison",
    "troubleshooting", "glossary",
)  # fmt: skip


def sessions(page: Path) -> list[Step]:
    return [step for block in blocks(page, "console") for step in steps(block)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_in_pages_print_what_they_show(page: Path, tmp_path: Path) -> None:
    shown = sessions(page)
    outcomes = run_commands([step.command for step in shown], tmp_path, plain_environment(os.environ))
    for step, outcome in zip(shown, outcomes, strict=True):
        assert outcome.status == 0, f"{step.command}\n{outcome.out}"
        why = differs(tuple(line for line in step.shown if line.strip()), _without_blank(outcome.out))
        assert why is None, f"{step.command}\n{why}"


def _without_blank(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip())


def test_tutorial_has_examples() -> None:
    assert [page.name for page in PAGES if page.name == "tutorial.md"]
    assert len(sessions(DOCS / "tutorial.md")) > 25


@pytest.mark.parametrize("name", WANTED)
def test_each_command_has_a_page(name: str) -> None:
    assert (DOCS / f"{name}.md").is_file()
    assert f"docs/{name}.md" in (CHECKOUT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_command_and_long_option_that_a_page_names_exists(page: Path) -> None:
    wrong = []
    for program, rest in OURS.findall(page.read_text(encoding="utf-8")):
        words = rest.split(" -- ")[0].split()
        place = PROGRAMS[f"git-{program}"]
        sub = next((word for word in words if word in SUBCOMMANDS), None) if program == "envlog" else None
        known = {
            spelling
            for option in load(SUBCOMMANDS[sub].place if sub else place).options  # type: ignore[attr-defined]
            for spelling in option.spellings
        }
        for word in words:
            name = word.partition("=")[0].rstrip(",;.)")
            if name.startswith("--") and len(name) > 2 and name not in known | {"--no-color"}:
                wrong.append(f"git {program}{rest}")
    assert not wrong


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_subcommand_that_a_page_names_exists(page: Path) -> None:
    named = set(SUB.findall(page.read_text(encoding="utf-8")))
    assert not named - {*SUBCOMMANDS, "good", "bad"}


def test_configuration_page_names_every_key() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8").lower()
    keys = {key.removeprefix("config ") for key in config_keys()}
    assert not sorted(key for key in keys if key not in text)


def test_glossary_names_every_trigger() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    assert not [trigger.value for trigger in Trigger if trigger.value not in text]
