"""Run every session that a page shows, in the order of the page and in one shell, and compare the output."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load
from git_envhist.model import Trigger
from tests.rules.built import config_keys
from tests.rules.source import CHECKOUT
from tests.support.documents import (
    ID,
    SHORT,
    Step,
    blocks,
    differs,
    mixed_ids,
    plain_environment,
    run_commands,
    steps,
)

DOCS = CHECKOUT / "docs"
GUIDE = DOCS / "guide"
INTERNALS = DOCS / "internals"
EVERY = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md")),
    *sorted(GUIDE.glob("*.md")),
    *sorted(INTERNALS.glob("*.md")),
]
# These pages need more than a shell; their own tests prepare it.
ELSEWHERE = {
    CHECKOUT / "README.md": "tests/docs/test_readme.py",
    GUIDE / "compat.md": "tests/compat",
    GUIDE / "workbench.md": "tests/docs/test_workbench.py",
}
PAGES = [page for page in EVERY if blocks(page, "console") and page not in ELSEWHERE]
OURS = re.compile(r"`git (env(?:log|diff|restore))((?: [^`]*)?)`")
SUB = re.compile(r"`git env(?:log|hist) ([a-z]{3,})[ `]")
IN_README = (
    "guide/tutorial", "guide/recipes", "guide/agents", "guide/recovery", "guide/secrets", "guide/configuration",
    "guide/troubleshooting", "guide/glossary", "internals/comparison", "internals/performance", "internals/format",
)  # fmt: skip
LIMIT = 20_000
"""Words that the guide may have."""


def label(page: Path) -> str:
    return page.relative_to(CHECKOUT).as_posix()


def sessions(page: Path) -> list[Step]:
    return [step for block in blocks(page, "console") for step in steps(block)]


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_page_shows_the_real_output(page: Path, tmp_path: Path) -> None:
    shown = sessions(page)
    outcomes = run_commands([step.command for step in shown], tmp_path, plain_environment(os.environ))
    for step, outcome in zip(shown, outcomes, strict=True):
        assert outcome.status == 0, f"{step.command}\n{outcome.out}"
        why = differs(tuple(line for line in step.shown if line.strip()), _without_blank(outcome.out))
        assert why is None, f"{step.command}\n{why}"
    printed = [_without_blank(outcome.out) for outcome in outcomes]
    lines = [tuple(line for line in step.shown if line.strip()) for step in shown]
    assert not mixed_ids(zip(lines, printed, strict=True)), "ids of several runs: record the page again"


@pytest.mark.parametrize("page", sorted(GUIDE.glob("*.md")), ids=label)
def test_id_in_a_command_or_in_the_text_was_shown_before(page: Path) -> None:
    assert not _ids_out_of_nowhere(page.read_text(encoding="utf-8"))


def test_id_that_no_output_shows_is_found() -> None:
    session = "```console\n$ git envlog\n1234abc  one\n$ git envlog show {}\n```\n`{}`\n"
    assert _ids_out_of_nowhere(session.format("1234abc", "1234abc")) == []
    assert _ids_out_of_nowhere(session.format("1234abd", "1234abc")) == ["1234abd"]
    assert _ids_out_of_nowhere(session.format("1234abc", "1234abd")) == ["1234abd"]


def _ids_out_of_nowhere(text: str) -> list[str]:
    """Return the ids in commands and in the text that no earlier output of the page shows."""
    seen: set[str] = set()
    wrong = []
    for place, part in enumerate(
        re.split(r"^```(?:console|text)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    ):
        for line in part.splitlines():
            found = [one[:SHORT] for one in ID.findall(line)]
            if place % 2 and not line.startswith("$ "):
                seen.update(found)
            else:
                wrong += [one for one in found if one not in seen]
    return wrong


def _without_blank(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip())


def test_tutorial_is_run() -> None:
    assert GUIDE / "tutorial.md" in PAGES
    assert len(sessions(GUIDE / "tutorial.md")) > 25


def test_guide_is_short_enough_to_read() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in GUIDE.glob("*.md")) <= LIMIT


def test_index_of_each_book_links_every_page() -> None:
    for book in (GUIDE, INTERNALS):
        index = (book / "README.md").read_text(encoding="utf-8")
        assert not [
            page.name for page in book.glob("*.md") if page.name != "README.md" and page.name not in index
        ]


@pytest.mark.parametrize("name", IN_README)
def test_readme_names_the_page(name: str) -> None:
    assert (DOCS / f"{name}.md").is_file()
    assert f"docs/{name}.md" in (CHECKOUT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", EVERY, ids=label)
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


@pytest.mark.parametrize("page", EVERY, ids=label)
def test_every_subcommand_that_a_page_names_exists(page: Path) -> None:
    named = set(SUB.findall(page.read_text(encoding="utf-8")))
    assert not named - {*SUBCOMMANDS, "good", "bad"}


def test_configuration_page_has_every_key_in_its_table_and_in_an_example() -> None:
    text = (GUIDE / "configuration.md").read_text(encoding="utf-8").lower()
    keys = {key.removeprefix("config ") for key in config_keys()}
    assert not sorted(key for key in keys if f"| `{key}" not in text)
    assert not sorted(
        key for key in keys if not re.search(rf"`git config (--\w+ )?{re.escape(key)}[ .]", text)
    )


def test_glossary_has_every_trigger() -> None:
    text = (GUIDE / "glossary.md").read_text(encoding="utf-8")
    assert not [trigger.value for trigger in Trigger if trigger.value not in text]
