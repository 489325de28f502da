"""Write the completion of a program for fish."""

from __future__ import annotations

from shapes import Option, Shape, Value, header

ASKED = {
    "revision": "(git envhist complete revisions 2>/dev/null)",
    "name": "(git envhist complete names 2>/dev/null)",
    "timeline": "(git envhist complete timelines 2>/dev/null)",
    "remote": "(git remote 2>/dev/null)",
    "directory": "(__fish_complete_directories)",
}
SHORTENED = {"file", "command", "free"}
BESIDE = """\
# git envlog, git envdiff, git envrestore, and aliases of git for them: each is completed as the program it runs.
# Made by completions/build.py: do not edit

function __git_envhist_line
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]; and string match -q -- '-*' $words[1]
        contains -- $words[1] -C -c; and set -e words[1]
        set -e words[1]
    end
    set -q words[1]; or return 1
    if not string match -qr '^env(log|diff|restore)$' -- $words[1]
        set -l meant (command git config --get alias.$words[1] 2>/dev/null | string split -n ' ')
        string match -qr '^env(log|diff|restore)$' -- $meant[1]; or return 1
        set words $meant $words[2..-1]
    end
    string join ' ' -- git-$words[1] (string escape -- $words[2..-1]) (commandline -ct)
end

function __git_envhist_offers
    set -l line (__git_envhist_line); and complete -C "$line"
end

complete -c git -n '__git_envhist_line >/dev/null' -f -k -a '(__git_envhist_offers)'
"""
BESIDE_PROGRAM = "complete -c git -n __fish_git_needs_command -f -a {name} -d {summary}\n"
WITH = r"""
# Which subcommand stands before the cursor; no option is offered behind `--`.
function __envhist_in --argument-names wanted
    set -l words (commandline -opc)
    contains -- -- $words; and return 1
    set -l found list
    for word in $words[2..-1]
        if contains -- $word @SUBCOMMANDS@
            set found $word
            break
        end
    end
    test "$found" = "$wanted"
end
"""
WITHOUT = r"""
# No option is offered behind `--`.
function __envhist_in
    not contains -- -- (commandline -opc)
end
"""


def fish_beside(programs: dict[str, list[Shape]]) -> str:
    """Return the file that fish reads at its start, because git's own completion loads no other file."""
    return BESIDE + "".join(
        BESIDE_PROGRAM.format(name=name.removeprefix("git-"), summary=_quoted(several[0].summary))
        for name, several in programs.items()
    )


def fish(program: str, shapes: list[Shape]) -> str:
    """Return the file of one program."""
    subcommands = [shape for shape in shapes if shape.name]
    asking = WITH.replace("@SUBCOMMANDS@", " ".join(shape.name for shape in subcommands))
    lines = [line for shape in shapes for line in _lines(shape, program, subcommands)]
    return "\n".join([f"# {header(program)}.", asking if subcommands else WITHOUT, *lines, ""])


def _lines(shape: Shape, program: str, subcommands: list[Shape]) -> list[str]:
    when = f"'__envhist_in {shape.name or 'list'}'" if subcommands else "__envhist_in"
    head = f"complete -c {program} -n {when}"
    found = [f"{head} {_option(option, shape)}" for option in shape.options]
    for value in shape.operands:
        found += _operand(head, value, subcommands)
    if subcommands and not shape.name:
        found += [f"{head} -f -a {sub.name} -d {_quoted(sub.summary)}" for sub in subcommands]
    return found


def _operand(head: str, value: Value, subcommands: list[Shape]) -> list[str]:
    if value.words:
        return [f"{head} -f -a '{' '.join(value.words)}'"]
    if value.kind == "subcommand":
        return [f"{head} -f -a '{' '.join(sub.name for sub in subcommands)}'"]
    if value.kind in SHORTENED:
        return []
    return [f"{head} -f -k -a '{ASKED[value.kind]}'"]


def _option(option: Option, shape: Shape) -> str:
    words = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.spellings]
    if option.takes_next:
        words.append(_value(shape.value(option)))
    return " ".join([*words, f"-d {_quoted(option.help)}"])


def _value(value: Value) -> str:
    if value.words:
        return f"-x -a '{' '.join(value.words)}'"
    if value.kind in ASKED:
        return f"-x -k -a '{ASKED[value.kind]}'"
    return "-r -F" if value.kind == "file" else "-x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
