"""`-h` and `--help`: the short help, made from the options themselves, and the way to the man page."""

from __future__ import annotations

import os
import sys

from git_envhist.cli.command import Command, Session, command
from git_envhist.cli.options import Option, argument
from git_envhist.cli.output import Output
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load
from git_envhist.errors import UsageError

INDENT = 28
HEADING = b"   "
"""What man puts before a heading below a section; text stands further to the right."""
GROUPS = {
    "take a moment": ("capture", "run", "watch", "name", "note"),
    "look": ("show", "recent", "browse", "status"),
    "check": ("verify", "bisect"),
    "go back, or two ways at once": ("undo", "redo", "fork"),
    "a piece of work": ("task", "resume", "effect", "observe"),
    "share": ("push", "fetch", "export", "import"),
    "keep in order": ("drop", "undrop", "prune", "purge", "gc", "du", "fsck"),
    "set up": ("init", "install", "uninstall", "key", "mcp", "help"),
}
"""The subcommands by what somebody wants who looks for one."""


def short_help(shown: Command, program: str) -> str:
    """How a command is written, what it does, and its options."""
    lines = [f"usage: {shown.usage}", "", shown.help.strip(), ""]
    if f"git {shown.name}" == program.replace("-", " ", 1) == "git envlog":
        lines += ["'git envdiff' tells what changed, 'git envrestore' goes back.", "", *subcommand_lines()]
    lines += ["options:", *option_lines(shown), ""]
    lines.append(f"'git help {program.removeprefix('git-')}' tells it all.")
    return "\n".join(lines) + "\n"


def umbrella_help() -> str:
    """What `git envhist` alone answers."""
    head = ["usage: git envhist <subcommand> [<options>]", "", "Every subcommand of 'git envlog':", ""]
    return "\n".join([*head, *subcommand_lines(), "'git help envhist' tells it all."]) + "\n"


def subcommand_lines() -> list[str]:
    """One line a subcommand, group by group, with an empty line behind each."""
    lines = []
    for wish, names in GROUPS.items():
        lines += [f"{wish}:", *(_entry(name, SUBCOMMANDS[name].summary) for name in names), ""]
    return lines


def option_lines(shown: Command) -> list[str]:
    """One line an option, in the order in which they were declared."""
    return [_entry(spelling(each), each.help) for each in shown.options]


def spelling(shown: Option) -> str:
    """`-n, --max-count <n>`, as help and man page have it."""
    names = ", ".join(shown.spellings)
    if shown.is_flag or not shown.metavar:
        return names
    return names + shown.metavar if shown.metavar.startswith("[") else f"{names} {shown.metavar}"


def _entry(head: str, text: str) -> str:
    if len(head) + 2 > INDENT - 1:
        return f"  {head}\n{' ' * INDENT}{text}"
    return f"  {head}".ljust(INDENT) + text


def show_page(program: str, output: Output, section: str | None = None) -> bool:
    """Let man(1) show the program's page, at a subcommand's section; False where there is no terminal, man or page."""
    page = find_page(program)
    if page is None or not output.terminal:
        return False
    try:
        child = os.posix_spawnp("man", ["man", page], opened_at(section))
    except OSError:
        return False
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def opened_at(section: str | None) -> dict[bytes, bytes]:
    """The environment for man: less, which it uses unless told otherwise, begins at the heading; others at the top."""
    environment = dict(os.environb)
    if section is not None:
        kept = environment.get(b"LESS", b"")
        environment[b"LESS"] = (kept + b" " if kept else b"") + b"+/^" + HEADING + os.fsencode(section)
    return environment


def find_page(program: str) -> str | None:
    """The man page that was installed with this package, or that of the checkout it runs from."""
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    places = (os.path.join(sys.prefix, "share", "man", "man1"), os.path.join(checkout, "docs", "man", "man1"))
    pages = [os.path.join(place, f"{program}.1") for place in places]
    return next((page for page in pages if os.path.isfile(page)), None)


@command("help", "git envlog help [<subcommand>]")
@argument("topic")
def help_command(session: Session, topic: str | None) -> int:
    """Print the short help of a subcommand, or of git envlog."""
    name = (topic or "envlog").removeprefix("git-")
    if name == "envhist":
        session.output.prose(umbrella_help().rstrip("\n"))
        return 0
    if f"git-{name}" in PROGRAMS:
        place, program = PROGRAMS[f"git-{name}"], f"git-{name}"
    elif name in SUBCOMMANDS:
        place, program = SUBCOMMANDS[name].place, "git-envlog"
    else:
        raise UsageError(
            f"no help for '{name}'", hint="one of: envlog, envdiff, envrestore, " + ", ".join(SUBCOMMANDS)
        )
    shown = load(place)
    assert isinstance(shown, Command)
    session.output.prose(short_help(shown, program).rstrip("\n"))
    return 0
