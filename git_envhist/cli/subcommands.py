"""The table of subcommands, synonyms for mistyped ones, and the short help (`-h`, `git envlog help`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from git_envhist.cli.command import Command, Session, command
from git_envhist.cli.output import Output
from git_envhist.cli.parser import Option, argument
from git_envhist.errors import UsageError
from git_envhist.lazy import pattern

HELP_COLUMNS = 80
USAGE_WORD = pattern(r"(?:\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\S)+")
"""A part of a usage that is not divided between two lines: a word, or everything in brackets."""
ALTERNATIVE = pattern(r" \| (?![^\[]*\])")
"""The sign between two forms of a command; inside brackets it is between two values."""


class Subcommand(NamedTuple):
    """The place of a subcommand's function, and its line in the short help."""

    place: str
    summary: str


SUBCOMMANDS = {
    "capture": Subcommand("git_envhist.cli.commands.capture:capture", "take a snapshot of the environment"),
    "show": Subcommand(
        "git_envhist.cli.commands.show:show", "show a snapshot in full, or an old version of a file"
    ),
    "why": Subcommand(
        "git_envhist.cli.commands.why:why", "show which step and call made something what it is"
    ),
    "blame": Subcommand(
        "git_envhist.cli.commands.blame:blame_command", "show which snapshot brought each line of a file"
    ),
    "recent": Subcommand(
        "git_envhist.cli.commands.recent:recent", "show recent changes, even without a snapshot"
    ),
    "verify": Subcommand(
        "git_envhist.cli.commands.verify:verify", "run a check, now or on an older snapshot"
    ),
    "bisect": Subcommand(
        "git_envhist.cli.commands.verify:bisect", "find the first snapshot where a check fails"
    ),
    "name": Subcommand("git_envhist.cli.commands.name:name", "name a snapshot, or remove a name"),
    "note": Subcommand("git_envhist.cli.commands.name:note", "add a note to a snapshot"),
    "undo": Subcommand(
        "git_envhist.cli.commands.restore:undo", "undo the last restore, or go one state back"
    ),
    "redo": Subcommand("git_envhist.cli.commands.restore:redo", "redo the last undo"),
    "revert": Subcommand(
        "git_envhist.cli.commands.revert_and_merge:revert", "take out what one step changed, keep the rest"
    ),
    "merge": Subcommand(
        "git_envhist.cli.commands.revert_and_merge:merge", "join the changes of another timeline"
    ),
    "run": Subcommand("git_envhist.cli.commands.run:run", "run a command between two snapshots"),
    "watch": Subcommand(
        "git_envhist.cli.commands.watch:watch_command", "take a snapshot after each change, until stopped"
    ),
    "task": Subcommand(
        "git_envhist.cli.commands.task:task", "add tasks and mark them started, done or failed"
    ),
    "resume": Subcommand(
        "git_envhist.cli.commands.task:resume", "show the next task and the snapshot it starts from"
    ),
    "effect": Subcommand(
        "git_envhist.cli.commands.effect:effect", "record a deployment or other outside action"
    ),
    "observe": Subcommand(
        "git_envhist.cli.commands.observe:observe", "record a checkpoint that your platform made"
    ),
    "fork": Subcommand(
        "git_envhist.cli.commands.fork:fork", "copy a snapshot into a new, separate working tree"
    ),
    "init": Subcommand("git_envhist.cli.commands.init:init", "create a history for a directory without git"),
    "push": Subcommand(
        "git_envhist.cli.commands.push:push_command", "send timelines to a remote, with notes and names"
    ),
    "fetch": Subcommand("git_envhist.cli.commands.fetch:fetch_command", "get timelines from a remote"),
    "export": Subcommand(
        "git_envhist.cli.commands.export:export_command", "write snapshots into one archive file"
    ),
    "import": Subcommand(
        "git_envhist.cli.commands.export:import_command", "read timelines from an archive file"
    ),
    "gc": Subcommand("git_envhist.cli.commands.gc:gc", "compact storage; no snapshot is removed"),
    "drop": Subcommand("git_envhist.cli.commands.drop:drop", "remove snapshots; undrop works within 30 days"),
    "undrop": Subcommand("git_envhist.cli.commands.drop:undrop", "restore dropped snapshots"),
    "prune": Subcommand("git_envhist.cli.commands.prune:prune", "drop old snapshots by a retention policy"),
    "du": Subcommand("git_envhist.cli.commands.du:du", "show what uses disk space, and what would free it"),
    "fsck": Subcommand(
        "git_envhist.cli.commands.fsck:fsck", "check every snapshot for damage, and repair it"
    ),
    "purge": Subcommand(
        "git_envhist.cli.commands.purge:purge", "erase a path from all snapshots, permanently"
    ),
    "install": Subcommand(
        "git_envhist.cli.commands.install:install_command",
        "add hooks so that git or an agent takes snapshots",
    ),
    "uninstall": Subcommand(
        "git_envhist.cli.commands.install:uninstall_command", "remove what install added"
    ),
    "status": Subcommand(
        "git_envhist.cli.commands.status:status", "show which hooks are active and their last runs"
    ),
    "key": Subcommand("git_envhist.cli.commands.key:key", "manage the keys that seal (encrypt) secret files"),
    "browse": Subcommand("git_envhist.cli.commands.browse:browse", "browse the timeline in this terminal"),
    "mcp": Subcommand("git_envhist.cli.commands.mcp:mcp", "serve agents over the Model Context Protocol"),
    "help": Subcommand("git_envhist.cli.subcommands:help_command", "print the short help of a subcommand"),
}
PROGRAMS = {
    "git-envlog": "git_envhist.cli.commands.log:log_command",
    "git-envdiff": "git_envhist.cli.commands.diff:envdiff",
    "git-envrestore": "git_envhist.cli.commands.restore:restore",
}
# Words of other tools, and the command that does the same here.
SYNONYMS = {
    "list": "git envlog",
    "ls": "git envlog",
    "log": "git envlog",
    "save": "git envlog capture",
    "snapshot": "git envlog capture",
    "checkpoint": "git envlog capture",
    "commit": "git envlog capture",
    "diff": "git envdiff",
    "restore": "git envrestore",
    "delete": "git envlog drop",
    "forget": "git envlog drop",
    "tag": "git envlog name",
}
# The same for words that can also be the name of a snapshot: then the name is meant.
WEAK_SYNONYMS = {
    "add": "git envlog capture",
    "create": "git envlog capture",
    "new": "git envlog capture",
    "snap": "git envlog capture",
    "take": "git envlog capture",
    "backup": "git envlog capture",
    "history": "git envlog",
    "timeline": "git envlog",
    "timelines": "git envlog --all",
    "snapshots": "git envlog",
    "back": "git envrestore",
    "apply": "git envrestore",
    "compare": "git envdiff",
    "changes": "git envdiff",
    "view": "git envlog show",
    "check": "git envlog verify",
    "test": "git envlog verify",
    "find": "git envlog --grep",
    "mv": "git envlog name",
    "rename": "git envlog name",
    "sync": "git envlog push",
    "clear": "git envlog drop",
    "destroy": "git envlog uninstall --history",
    "setup": "git envlog install",
    "enable": "git envlog install",
    "start": "git envlog install",
    "disable": "git envlog uninstall",
    "stop": "git envlog uninstall",
    "stash": "git envlog capture",
    "checkout": "git envrestore",
    "switch": "git envrestore",
    "reset": "git envrestore",
    "revert": "git envrestore",
    "rollback": "git envrestore",
    "pop": "git envrestore --undo",
    "remove": "git envlog drop",
    "rm": "git envlog drop",
    "clean": "git envlog prune",
    "cleanup": "git envlog prune",
    "names": "git envlog name",
    "branch": "git envlog fork",
    "worktree": "git envlog fork",
    "pull": "git envlog fetch",
    "clone": "git envlog fetch",
    "grep": "git envlog --grep",
    "search": "git envlog --grep",
    "cat": "git envlog show",
    "info": "git envlog status",
    "doctor": "git envlog status",
    "version": "git envlog --version",
    "hooks": "git envlog install",
    "config": "git config envhist.<key>",
}


def load(place: str) -> object:
    """Return the object at `module:name`."""
    import importlib  # loaded late: only needed to load a command

    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def did_you_mean(word: str) -> str | None:
    """Return the command that a word was probably meant to be."""
    meant = {**WEAK_SYNONYMS, **SYNONYMS}
    if word in meant:
        return meant[word]
    import difflib  # loaded late: only a usage error needs it

    # Nearly every word is close to one of these many short words, so an unknown name would be taken for a typing
    # error.
    near = difflib.get_close_matches(word, [*SUBCOMMANDS, *SYNONYMS], n=1, cutoff=0.75)
    if not near:
        return None
    return meant.get(near[0], f"git envlog {near[0]}")


# The short help, made from the declared options, and the link to the man page.

INDENT = 28
HEADING = b"   "
"""The indent that man prints before a subheading; text has a larger one."""
GROUPS = {
    "take snapshots": ("capture", "run", "watch", "name", "note"),
    "look at snapshots": ("show", "why", "blame", "recent", "browse", "status"),
    "run checks": ("verify", "bisect"),
    "go back, or try two ways": ("undo", "redo", "revert", "fork", "merge"),
    "record work": ("task", "resume", "effect", "observe"),
    "share": ("push", "fetch", "export", "import"),
    "clean up and repair": ("drop", "undrop", "prune", "purge", "gc", "du", "fsck"),
    "set up": ("init", "install", "uninstall", "key", "mcp", "help"),
}
"""The subcommands by purpose."""


def short_help(shown: Command, program: str, columns: int | None = None) -> str:
    """Return the usage of a command, its description, and its options; `columns`: the width of the terminal."""
    width = min(columns or HELP_COLUMNS, HELP_COLUMNS)
    lines = [*usage_lines(shown.usage), "", *_description_lines(shown.help, width)]
    if f"git {shown.name}" == program.replace("-", " ", 1) == "git envlog":
        lines += [
            "'git envdiff' shows what changed, 'git envrestore' restores a snapshot.",
            "",
            *subcommand_lines(),
        ]
    lines += ["options:", *option_lines(shown), ""]
    lines.append(f"'git help {program.removeprefix('git-')}' shows the full manual.")
    return "\n".join(lines) + "\n"


def usage_lines(usage: str) -> list[str]:
    """Return a usage in lines of at most 80 columns; of a long one, each alternative begins a line."""
    whole = _wrapped(["usage:", *USAGE_WORD.findall(usage)], indent=7)
    if len(whole) == 1:
        return whole
    first, *others = ALTERNATIVE.split(usage)
    lines = _wrapped(["usage:", *USAGE_WORD.findall(first)], indent=7)
    for other in others:
        lines += [f"       {line}" for line in _wrapped(["|", *USAGE_WORD.findall(other)], indent=2)]
    return lines


def _wrapped(words: Sequence[str], indent: int = 0, columns: int = HELP_COLUMNS) -> list[str]:
    """Return words in lines of limited width, with all lines but the first indented."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word)
    return lines


def _description_lines(text: str, columns: int) -> list[str]:
    """Return the paragraphs of a description in lines of limited width."""
    lines = []
    for paragraph in text.strip().split("\n\n"):
        lines += [*_wrapped(paragraph.split(), columns=columns), ""]
    return lines


def umbrella_help() -> str:
    """Return the help of `git envhist` without a subcommand."""
    head = ["usage: git envhist <subcommand> [<options>]", "", "Every subcommand of 'git envlog':", ""]
    return "\n".join([*head, *subcommand_lines(), "'git help envhist' shows the full manual."]) + "\n"


def subcommand_lines() -> list[str]:
    """Return one line per subcommand, in groups, with an empty line after each group."""
    lines = []
    for wish, names in GROUPS.items():
        lines += [f"{wish}:", *(_entry(name, SUBCOMMANDS[name].summary) for name in names), ""]
    return lines


def option_lines(shown: Command) -> list[str]:
    """Return the options in the order of declaration, each with its explanation."""
    return [_entry(spelling(each), each.help) for each in shown.options]


def spelling(shown: Option) -> str:
    """Return `-n, --max-count <n>`, as in help and man page."""
    names = ", ".join(shown.spellings)
    if shown.is_flag or not shown.metavar:
        return names
    return names + shown.metavar if shown.metavar.startswith("[") else f"{names} {shown.metavar}"


def _entry(head: str, text: str) -> str:
    lines = _wrapped([" " * (INDENT - 1), *text.split()], INDENT)
    if len(head) + 2 > INDENT - 1:
        return "\n".join([f"  {head}", *lines])
    return "\n".join([f"  {head}".ljust(INDENT) + lines[0].lstrip(), *lines[1:]])


def show_page(program: str, output: Output, section: str | None = None) -> bool:
    """Show the man page at the section of a subcommand; return False without a terminal, man or page."""
    page = find_page(program)
    if page is None or not output.terminal:
        return False
    try:
        child = os.posix_spawnp("man", ["man", page], opened_at(section))
    except OSError:
        return False
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def opened_at(section: str | None) -> dict[bytes, bytes]:
    """Return the environment for man: less starts at the heading, other pagers at the top."""
    environment = dict(os.environb)
    if section is not None:
        kept = environment.get(b"LESS", b"")
        environment[b"LESS"] = (kept + b" " if kept else b"") + b"+/^" + HEADING + os.fsencode(section)
    return environment


def find_page(program: str) -> str | None:
    """Return the path of the man page, installed with this package or in the checkout."""
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
    session.output.prose(short_help(shown, program, session.output.columns).rstrip("\n"))
    return 0
