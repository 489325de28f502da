"""The options and arguments of a command as plain data, and the short way from words to their values.

click takes 20 ms to be loaded, a third of what `git envlog` may take. So words that leave nothing to ask are read
here. Whatever is not plainly right (an option nobody knows, a value that is missing or no number, letters in one
word, `-h`) is left to click, which is made from the same data and has the words for it; tests/cli/test_options.py
holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

# The words of a command line, put in order before click sees them.
#
# click drops the first `--`, knows no `-5`, and lets an option whose value may be left out eat the next word. git users
# rely on all three, so this pass splits at `--`, spells numbers and bare options out, and leaves the rest to click.

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


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Option(NamedTuple):
    """One option."""

    spellings: tuple[str, ...]
    name: str
    help: str
    metavar: str = ""
    is_flag: bool = False
    multiple: bool = False
    number: bool = False
    choices: tuple[str, ...] = ()
    tells: bool = False
    """Prints something and ends the program, whatever else is asked for."""

    @property
    def takes_next(self) -> bool:
        """Whether the next word is its value; where that may be left out, it is given with `=` only."""
        return not self.is_flag and not any(spelling in BARE for spelling in self.spellings)


class Argument(NamedTuple):
    """What stands in the line without being an option."""

    name: str
    many: bool = False
    default: str | None = None
    metavar: str | None = None


def make_option(
    *words: str,
    help: str,  # noqa: A002 - as click calls it
    metavar: str = "",
    is_flag: bool = False,
    multiple: bool = False,
    number: bool = False,
    choices: tuple[str, ...] = (),
    tells: bool = False,
) -> Option:
    """An option; a word without a dash is the name its value goes by, else the first long spelling is."""
    spellings = tuple(word for word in words if word.startswith("-"))
    names = [word for word in words if not word.startswith("-")]
    names += [word[2:].replace("-", "_") for word in spellings if word.startswith("--")]
    return Option(spellings, names[0], help, metavar, is_flag, multiple, number, choices, tells)


def option(*words: str, **more: Any) -> Decorator:
    """Declare an option of the command that is defined below; see `make_option`."""
    return _attach(make_option(*words, **more))


def argument(
    name: str, *, many: bool = False, default: str | None = None, metavar: str | None = None
) -> Decorator:
    """Declare an argument of the command that is defined below; it may be left out."""
    return _attach(Argument(name, many, default, metavar))


def declared(run: Callable[..., Any]) -> list[Option | Argument]:
    """What was declared for a function, in the order of the lines."""
    # Decorators are applied from the last to the first.
    return getattr(run, "__declared__", [])[::-1]


def _attach(declaration: Option | Argument) -> Decorator:
    def attach(run: Callable[..., Any]) -> Callable[..., Any]:
        vars(run).setdefault("__declared__", []).append(declaration)
        return run

    return attach


def read_plainly(
    words: Sequence[str], options: Sequence[Option], arguments: Sequence[Argument]
) -> dict[str, Any] | None:
    """The values by their names, as click would give them; None where click is to be asked."""
    by_spelling = {spelling: each for each in options for spelling in each.spellings}
    values: dict[str, Any] = {each.name: _nothing(each) for each in options if not each.tells}
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word[:1] != "-" or word == "-":
            operands.append(word)
            continue
        given = _split(word, by_spelling)
        if given is None:
            return None
        chosen, text = given
        if not chosen.is_flag and text is None:
            text = next(rest, None)
        value = _convert(chosen, text)
        if value is None:
            return None
        values[chosen.name] = (*values[chosen.name], value) if chosen.multiple else value
    named = _name_operands(operands, arguments)
    return None if named is None else {**named, **values}


def _nothing(each: Option) -> object:
    if each.multiple:
        return ()
    return False if each.is_flag else None


def _split(word: str, by_spelling: dict[str, Option]) -> tuple[Option, str | None] | None:
    """The option that a word names, and the value that is in the word; None where that is not plain."""
    if word.startswith("--"):
        name, sign, text = word.partition("=")
        value = text if sign else None
    else:
        name, value = word[:2], word[2:] or None
    chosen = by_spelling.get(name)
    if chosen is None or chosen.tells or (chosen.is_flag and value is not None):
        return None
    return chosen, value


def _convert(chosen: Option, text: str | None) -> object:
    """The value that a text stands for; None where it stands for none."""
    if chosen.is_flag:
        return True
    if text is None or (chosen.choices and text not in chosen.choices):
        return None
    if not chosen.number:
        return text
    try:
        return int(text)
    except ValueError:
        return None


def _name_operands(operands: list[str], arguments: Sequence[Argument]) -> dict[str, Any] | None:
    named: dict[str, Any] = {}
    for argument in arguments:
        if argument.many:
            named[argument.name], operands = tuple(operands), []
        else:
            named[argument.name] = operands.pop(0) if operands else argument.default
    return None if operands else named
