"""Declare options and arguments as plain data, and parse simple command lines without click.

Loading click takes 20 ms, a third of the time that `git envlog` may take. `read_plainly` therefore parses every
command line that is certainly valid. It leaves the rest (an unknown option, a missing or invalid value, combined
letters, `-h`) to click, which gets the same declarations (`click_parser.py`) and writes the error.
tests/cli/test_options.py checks that both parsers return the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

# Prepare a command line for parsing.
#
# click drops the first `--`, does not know `-5`, and gives the next word to an option with an optional value. git users
# rely on all three, so `split_words` splits at `--` and expands counts and bare options.

# Replacement of an option without a value. The value of these options can only be given with `=`.
BARE = {
    "--color": "--color=always",
    "--no-color": "--color=never",
    "--json": "--json=array",
    "-M": "-M50%",
    "--find-renames": "--find-renames=50%",
}


class Words(NamedTuple):
    """A command line split at `--`: the options, and the paths after it (None without `--`)."""

    options: list[str]
    paths: tuple[str, ...] | None


def split_words(words: Sequence[str], valued: Collection[str], *, counts: bool = False) -> Words:
    """Split a command line at `--`. `valued` are the options with a value; with `counts`, `-5` is a count."""
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
    """Return the index of the first word that is neither an option nor the value of one."""
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
    """Return the words with `--` before the first operand, unless there is a `--` already."""
    at = first_operand(words, valued)
    return list(words) if at is None else [*words[:at], "--", *words[at:]]


def takes_next(word: str, valued: Collection[str]) -> bool:
    """Return whether the value of this option is the next word: `-m`, `--name`, `-am`."""
    if word.startswith("--") or not word.startswith("-"):
        return word in valued
    for position, letter in enumerate(word[1:], start=2):
        if "-" + letter in valued:
            return position == len(word)
    return False


def wants_json(words: Sequence[str]) -> bool:
    """Return whether to print errors as JSON; works for an invalid command line too."""
    before = words[: words.index("--")] if "--" in words else words
    return any(word == "--json" or word.startswith("--json=") for word in before)


def _is_count(word: str) -> bool:
    return word[:1] == "-" and word[1:].isascii() and word[1:].isdecimal()


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Option(NamedTuple):
    """One option of a command."""

    spellings: tuple[str, ...]
    name: str
    help: str
    metavar: str = ""
    is_flag: bool = False
    multiple: bool = False
    number: bool = False
    choices: tuple[str, ...] = ()
    prints_and_exits: bool = False
    """True if it only prints something (`-h`, `--version`), whatever else is given."""

    @property
    def takes_next(self) -> bool:
        """True if the next word is its value. An optional value is given with `=` only."""
        return not self.is_flag and not any(spelling in BARE for spelling in self.spellings)


class Argument(NamedTuple):
    """A positional argument of a command."""

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
    prints_and_exits: bool = False,
) -> Option:
    """Return an option. A word without a dash names its value; the default is the first long spelling."""
    spellings = tuple(word for word in words if word.startswith("-"))
    names = [word for word in words if not word.startswith("-")]
    names += [word[2:].replace("-", "_") for word in spellings if word.startswith("--")]
    return Option(spellings, names[0], help, metavar, is_flag, multiple, number, choices, prints_and_exits)


def option(*words: str, **more: Any) -> Decorator:
    """Declare an option of the decorated command; see `make_option`."""
    return _attach(make_option(*words, **more))


def argument(
    name: str, *, many: bool = False, default: str | None = None, metavar: str | None = None
) -> Decorator:
    """Declare an optional positional argument of the decorated command."""
    return _attach(Argument(name, many, default, metavar))


def declarations_of(run: Callable[..., Any]) -> list[Option | Argument]:
    """Return the declarations of a function, in source order."""
    # Python applies decorators from the last to the first.
    return getattr(run, "__declared__", [])[::-1]


def _attach(declaration: Option | Argument) -> Decorator:
    def attach(run: Callable[..., Any]) -> Callable[..., Any]:
        vars(run).setdefault("__declared__", []).append(declaration)
        return run

    return attach


# Options that several commands share. Each is declared here once.


def combine_options(*decorators: Decorator) -> Decorator:
    """Return one decorator that declares several options, in this order."""

    def declare(run: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            run = decorator(run)
        return run

    return declare


def dry_run(help: str = "print what would be done; change nothing") -> Decorator:  # noqa: A002 - as for `option`
    """Declare `-n/--dry-run`."""
    return option("-n", "--dry-run", is_flag=True, help=help)


def message(help: str) -> Decorator:  # noqa: A002 - as for `option`
    """Declare `-m/--message <intent>`, which can be repeated."""
    return option("-m", "--message", "messages", metavar="<intent>", multiple=True, help=help)


def force(help: str = "override a refusal whose hint names --force") -> Decorator:  # noqa: A002 - as for `option`
    """Declare `-f/--force`."""
    return option("-f", "--force", is_flag=True, help=help)


def ignore_hidden_processes(condition: str = "") -> Decorator:
    """Declare `--force` for commands that wait for the git processes of other users."""
    return option("--force", is_flag=True, help=f"{condition}ignore git processes of other users")


def allow_unsigned(verb: str) -> Decorator:
    """Declare `--allow-unsigned` for a command that writes the files of a snapshot."""
    return option("--allow-unsigned", is_flag=True, help=f"{verb} a snapshot that none of your keys signed")


def allow_tokens(also: str = "") -> Decorator:
    """Declare `--allow` for a command that sends files away."""
    return option(
        "--allow",
        metavar="<path>",
        multiple=True,
        help=f"allow this path although it has a token{also}",
    )


plan_id = option("--plan", metavar="<id>", help="refuse unless the plan still has this id")
date_format = option("--date", metavar="<style>", help="print times as git log does: iso, relative, ...")
in_place_options = combine_options(
    dry_run("print the plan; change nothing"),
    plan_id,
    force(),
    option("--services", is_flag=True, help="also restore the state of the configured services"),
)
"""The options of every restore into this working tree: `envrestore`, `undo` and `redo`."""
diff_formats = combine_options(
    option("--stat", is_flag=True, help="print the changed lines and bytes per file"),
    option("--name-status", is_flag=True, help="print the changed paths, and how each changed"),
    option("--name-only", is_flag=True, help="print the changed paths"),
    option("-p", "-u", "--patch", is_flag=True, help="print the changes as a patch"),
    option("--full-index", is_flag=True, help="with -p: print full object ids"),
)
"""The formats in which `envlog` and `envdiff` print changes."""


def read_plainly(
    words: Sequence[str], options: Sequence[Option], arguments: Sequence[Argument]
) -> dict[str, Any] | None:
    """Return the values by name, equal to those of click; None if click must parse the words."""
    by_spelling = {spelling: each for each in options for spelling in each.spellings}
    values: dict[str, Any] = {each.name: _default(each) for each in options if not each.prints_and_exits}
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


def _default(each: Option) -> object:
    if each.multiple:
        return ()
    return False if each.is_flag else None


def _split(word: str, by_spelling: dict[str, Option]) -> tuple[Option, str | None] | None:
    """Return the option in a word and the value in the same word; None if click must parse it."""
    if word.startswith("--"):
        name, sign, text = word.partition("=")
        value = text if sign else None
    else:
        name, value = word[:2], word[2:] or None
    chosen = by_spelling.get(name)
    if chosen is None or chosen.prints_and_exits or (chosen.is_flag and value is not None):
        return None
    return chosen, value


def _convert(chosen: Option, text: str | None) -> object:
    """Return the value of an option given as text; None if it is not valid."""
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
