"""Every option is in its man page and in the completions, and no other option is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from git_envhist.cli.command import Command
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load, short_help

CHECKOUT = Path(__file__).resolve().parents[2]
MAN = CHECKOUT / "docs" / "man"
COMMON = "COMMON OPTIONS"
# (command, page, sections of it that hold the command's options)
PLACES = {
    "git_envhist.cli.commands.log:log_command": ("git-envlog", ("OPTIONS", COMMON)),
    PROGRAMS["git-envrestore"]: ("git-envrestore", ("OPTIONS",)),
    PROGRAMS["git-envdiff"]: ("git-envdiff", ("OPTIONS", COMMON)),
    **{sub.place: ("git-envlog", (name, COMMON)) for name, sub in SUBCOMMANDS.items()},
}
TITLE = re.compile(r"^(?P<title>[A-Za-z ]+)\n(?P<line>=+|-+)$", re.MULTILINE)
TERM = re.compile(r"^``-.*$", re.MULTILINE)
OPTION = re.compile(r"``(--?[A-Za-z][A-Za-z-]*)")
QUIET = {"-q", "--quiet"}
# Another spelling of an option, handled before click.
SPELLED_OUT = {"--no-color"}


def sections(page: str) -> dict[str, str]:
    text = (MAN / f"{page}.rst").read_text(encoding="utf-8")
    titles = list(TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    return {title["title"]: text[title.end() : end] for title, end in zip(titles, ends, strict=True)}


def options_of(place: str) -> set[str]:
    command = load(place)
    assert isinstance(command, Command)
    return {spelling for option in command.options for spelling in option.spellings}


@pytest.mark.parametrize("place", PLACES)
def test_man_page_has_every_option_and_no_other(place: str) -> None:
    page, names = PLACES[place]
    found = sections(page)
    terms = [term for name in names for term in TERM.findall(found.get(name, ""))]
    documented = {option for term in terms for option in OPTION.findall(term)}
    # The section of common options names the commands that have this one.
    assert documented - QUIET == options_of(place) - QUIET
    assert options_of(place).isdisjoint(QUIET) or documented >= QUIET


@pytest.mark.parametrize("place", PLACES)
def test_every_option_is_explained_in_the_short_help(place: str) -> None:
    command = load(place)
    assert isinstance(command, Command)
    shown = short_help(command, "git-envlog")
    assert all(option in shown for option in options_of(place))
    assert all(option.help for option in command.options)
    assert shown.startswith("usage: git env")


@pytest.mark.parametrize("place", PLACES)
def test_short_help_is_at_most_80_columns_wide(place: str) -> None:
    command = load(place)
    assert isinstance(command, Command)
    shown = short_help(command, "git-envlog")
    assert max(map(len, shown.splitlines())) <= 80
    # Wrapping loses no word.
    words = ["usage:", *command.usage.split(), *command.help.split()]
    assert shown.split()[: len(words)] == words


@pytest.mark.parametrize("source", sorted(MAN.glob("*.rst")), ids=lambda path: path.stem)
def test_committed_page_was_made_from_its_source(source: Path) -> None:
    stamp = runpy.run_path(str(MAN / "build.py"))["stamp"]
    page = (MAN / "man1" / f"{source.stem}.1").read_text(encoding="utf-8")
    assert page.startswith(stamp(source.read_bytes())), "run: python docs/man/build.py"
    assert f".SH NAME\n{source.stem} \\- " in page


def test_each_program_has_its_page() -> None:
    pages = {source.stem for source in MAN.glob("*.rst")}
    assert pages == {*PROGRAMS, "git-envhist"}


SHELLS = {
    "bash": lambda name: f"completions/bash/{name}",
    "zsh": lambda name: f"completions/zsh/_{name}",
    "fish": lambda name: f"completions/fish/{name}.fish",
}


def completed(shell: str, text: str) -> set[str]:
    if shell == "fish":
        return {
            f"--{name}"
            for line in re.findall(r"^complete .*", text, flags=re.MULTILINE)
            for name in re.findall(r" -l ([a-z-]+)", line.partition(" -d '")[0])
        }
    return set(
        re.findall(
            r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"^\s*(#.*|--\w+=\*\))$", "", text, flags=re.MULTILINE)
        )
    )


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("program", ["git-envlog", "git-envdiff", "git-envrestore"])
def test_completion_knows_every_long_option_and_no_other(shell: str, program: str) -> None:
    places = [PROGRAMS[program]]
    if program == "git-envlog":
        places += [subcommand.place for subcommand in SUBCOMMANDS.values()]
    options = {name for place in places for name in options_of(place) if name.startswith("--")}
    text = (CHECKOUT / SHELLS[shell](program)).read_text(encoding="utf-8")
    assert completed(shell, text) == options | SPELLED_OUT
