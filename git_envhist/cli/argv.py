"""The words of a command line, put in order before click sees them.

click drops the first `--`, knows no `-5`, and lets an option whose value may be left out eat the next word. git users
rely on all three, so this pass splits at `--`, spells numbers and bare options out, and leaves the rest to click.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

# What a bare option stands for; the value of these is only ever given with `=`.
BARE = {
    "--color": "--color=always",
    "--no-color": "--color=never",
    "--json": "--json=array",
    "-M": "-M50%",
    "--find-renames": "--find-renames=50%",
}


class Words(NamedTuple):
    """A command line in two halves: the words for click, and the paths after `--`, None where there was none."""

    options: list[str]
    paths: tuple[str, ...] | None


def split_words(words: Sequence[str], valued: Collection[str], *, counts: bool = False) -> Words:
    """The halves of a command line, given the options that take a value; `counts` lets `-5` stand for a count."""
    options: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return Words(options, tuple(words[at + 1 :]))
        if takes_next(word, valued):
            options += words[at : at + 2]
            at += 2
            continue
        options.append(f"--max-count={word[1:]}" if counts and _is_count(word) else BARE.get(word, word))
        at += 1
    return Words(options, None)


def first_operand(words: Sequence[str], valued: Collection[str]) -> int | None:
    """Where the first word stands that is neither an option nor the value of one."""
    at = 0
    while at < len(words) and words[at] != "--":
        if takes_next(words[at], valued):
            at += 2
        elif words[at].startswith("-") and words[at] != "-":
            at += 1
        else:
            return at
    return None


def with_dashes(words: Sequence[str], valued: Collection[str]) -> list[str]:
    """Return the words with `--` before the first operand, unless `--` is there."""
    at = first_operand(words, valued)
    return list(words) if at is None else [*words[:at], "--", *words[at:]]


def takes_next(word: str, valued: Collection[str]) -> bool:
    """Whether the word is an option whose value is the next word: `-m`, `--name`, `-am`."""
    if word.startswith("--") or not word.startswith("-"):
        return word in valued
    for position, letter in enumerate(word[1:], start=2):
        if "-" + letter in valued:
            return position == len(word)
    return False


def wants_json(words: Sequence[str]) -> bool:
    """Whether an error is to be told as JSON: known even where the words cannot be understood."""
    before = words[: words.index("--")] if "--" in words else words
    return any(word == "--json" or word.startswith("--json=") for word in before)


def _is_count(word: str) -> bool:
    return word[:1] == "-" and word[1:].isascii() and word[1:].isdecimal()
