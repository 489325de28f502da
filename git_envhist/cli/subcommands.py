"""The subcommands there are, where each lives, and what is meant by words that are none."""

from __future__ import annotations

from typing import NamedTuple


class Subcommand(NamedTuple):
    """Where a subcommand is defined, and the line that short help has for it."""

    place: str
    summary: str


SUBCOMMANDS = {
    "capture": Subcommand("git_envhist.cli.capture:capture", "take a snapshot of the environment"),
    "show": Subcommand("git_envhist.cli.show:show", "one snapshot in full, or a file as it was"),
    "recent": Subcommand("git_envhist.cli.recent:recent", "what changed of late, without any snapshot"),
    "verify": Subcommand("git_envhist.cli.verify:verify", "run a check, now or on an older moment"),
    "bisect": Subcommand("git_envhist.cli.verify:bisect", "find the first moment where a check fails"),
    "name": Subcommand("git_envhist.cli.name:name", "name a moment, or take its name away"),
    "note": Subcommand("git_envhist.cli.note:note", "add to the story of a moment"),
    "undo": Subcommand("git_envhist.cli.undo:undo", "take back a restore, or go to the state before"),
    "redo": Subcommand("git_envhist.cli.undo:redo", "go forth again after an undo"),
    "run": Subcommand("git_envhist.cli.run:run", "run a command between two snapshots"),
    "watch": Subcommand("git_envhist.cli.watch:watch_command", "capture by itself after each change"),
    "task": Subcommand("git_envhist.cli.task:task", "keep the tasks of a piece of work"),
    "resume": Subcommand("git_envhist.cli.task:resume", "which task comes next, and from where"),
    "effect": Subcommand("git_envhist.cli.effect:effect", "note what is done outside the machine"),
    "observe": Subcommand(
        "git_envhist.cli.observe:observe", "keep checkpoints that the platform made without us"
    ),
    "fork": Subcommand("git_envhist.cli.fork:fork", "an environment of its own that begins at a moment"),
    "init": Subcommand("git_envhist.cli.init:init", "begin a history for a directory without git"),
    "push": Subcommand(
        "git_envhist.cli.push:push_command", "send the history to a remote, with its notes and names"
    ),
    "fetch": Subcommand("git_envhist.cli.fetch:fetch_command", "bring what others share beside our own"),
    "export": Subcommand("git_envhist.cli.export:export_command", "write moments into one file"),
    "import": Subcommand("git_envhist.cli.export:import_command", "bring the moments of a file beside ours"),
    "gc": Subcommand("git_envhist.cli.gc:gc", "pack the history, and remove what no moment holds"),
    "drop": Subcommand("git_envhist.cli.drop:drop", "forget moments; for 30 days they can come back"),
    "undrop": Subcommand("git_envhist.cli.drop:undrop", "bring dropped moments back"),
    "prune": Subcommand("git_envhist.cli.prune:prune", "thin the timeline by a policy"),
    "du": Subcommand("git_envhist.cli.du:du", "what holds the space, and what would free it"),
    "fsck": Subcommand("git_envhist.cli.fsck:fsck", "is every moment whole?"),
    "purge": Subcommand("git_envhist.cli.purge:purge", "erase a path from every snapshot, for good"),
    "install": Subcommand(
        "git_envhist.cli.install:install_command", "have git, or a coding agent, capture by itself"
    ),
    "uninstall": Subcommand(
        "git_envhist.cli.install:uninstall_command", "take away what install put in place"
    ),
    "status": Subcommand("git_envhist.cli.status:status", "what captures by itself here, and whether it did"),
    "key": Subcommand(
        "git_envhist.cli.key:key", "show, renew, export or import the keys that seal secret files"
    ),
    "browse": Subcommand("git_envhist.cli.browse:browse", "walk through the timeline on this terminal"),
    "mcp": Subcommand("git_envhist.cli.mcp:mcp", "serve the verbs to agents over the Model Context Protocol"),
    "help": Subcommand("git_envhist.cli.helptext:help_command", "the short help of a subcommand"),
}
PROGRAMS = {
    "git-envlog": "git_envhist.cli.log:log_command",
    "git-envdiff": "git_envhist.cli.envdiff:envdiff",
    "git-envrestore": "git_envhist.cli.restore:restore",
}
# Words of other tools, and the command that does here what they do there.
MEANT = {
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
# The same, of words that are good for a name: where a moment bears one, that is meant.
ALSO_MEANT = {
    "add": "git envlog capture",
    "create": "git envlog capture",
    "new": "git envlog capture",
    "snap": "git envlog capture",
    "take": "git envlog capture",
    "backup": "git envlog capture",
    "history": "git envlog",
    "timeline": "git envlog",
    "timelines": "git envlog --all",
    "moments": "git envlog",
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
    "blame": "git envlog -S <text>",
    "cat": "git envlog show",
    "info": "git envlog status",
    "doctor": "git envlog status",
    "version": "git envlog --version",
    "hooks": "git envlog install",
    "config": "git config envhist.<key>",
}


def load(place: str) -> object:
    """What stands at `module:name`."""
    import importlib  # loaded late: only to load a command

    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def did_you_mean(word: str) -> str | None:
    """The command that a word was probably meant to be."""
    meant = {**ALSO_MEANT, **MEANT}
    if word in meant:
        return meant[word]
    import difflib  # loaded late: only a slip of the pen needs it

    # Near to one of those many short words is nearly every word: a name that is none would be taken for a slip.
    near = difflib.get_close_matches(word, [*SUBCOMMANDS, *MEANT], n=1, cutoff=0.75)
    if not near:
        return None
    return meant.get(near[0], f"git envlog {near[0]}")
