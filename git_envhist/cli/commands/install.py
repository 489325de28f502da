"""`git envlog install` and `uninstall`: hooks of git and coding agents, man pages and completions."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence

from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.watcher import install_watcher, uninstall_watcher
from git_envhist.cli.errors import ask_for, print_error_line, warn
from git_envhist.cli.formats import count, size
from git_envhist.cli.parser import Decorator, dry_run, force, ignore_hidden_processes, option
from git_envhist.consent import trusted_list
from git_envhist.discovery import unregister_directory
from git_envhist.errors import EnvhistError, NotARepository, Refused, UsageError
from git_envhist.git.repository import Repository
from git_envhist.integrations.base import InstallTarget
from git_envhist.integrations.edits import patch_lines
from git_envhist.integrations.install import (
    ALL_AGENTS,
    all_integrations,
    install,
    named_integrations,
    parts,
    uninstall,
)
from git_envhist.integrations.remove_history import read_inventory, remove_history
from git_envhist.integrations.shell_links import (
    ShellLink,
    create_links,
    missing_links,
    remove_links,
    shell_links,
)
from git_envhist.lazy import replace
from git_envhist.model.integrations import FileEdit, IntegrationChange
from git_envhist.printable_text import escape, escape_invalid

# `git envlog uninstall --history`: delete all snapshots, notes, packs and keys after a confirmation.


class HistoryRemoval:
    """Asks for confirmation, deletes a history, and prints the result."""

    def __init__(self, repository: Repository, *, force: bool = False) -> None:
        self._repository = replace(repository, ignores_hidden=force)
        self._found = read_inventory(repository, os.environ)

    def ask(self) -> None:
        """Raise Refused unless the user confirms on a terminal or with --yes."""
        sentence = f"{self._in_words()} would be deleted permanently"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused(sentence, hint="to confirm: git envlog uninstall --history --yes")
        ask_for(f"{sentence}, with the keys. Type 'yes': ")
        if sys.stdin.readline().strip() != "yes":
            raise Refused("nothing was removed", hint="type 'yes' to confirm")

    def carry_out(self) -> None:
        for remark in remove_history(self._repository, self._found):
            warn(remark)
        trusted_list(os.environ).forget(self._repository.common_dir)
        if self._repository.plain:
            unregister_directory(self._repository, os.environ)

    def lines(self, dry_run: bool) -> Iterator[str]:
        if not dry_run:
            yield f"deleted: {self._in_words()}"
            return
        for what in (*self._found.refs, *self._files()):
            yield f"would remove {escape(what)}"

    def as_json(self) -> dict[str, object]:
        return {
            "snapshots": self._found.snapshots,
            "bytes": self._found.stored,
            "refs": [*map(escape_invalid, self._found.refs)],
            "files": [*map(escape_invalid, self._files())],
        }

    def _files(self) -> tuple[str, ...]:
        found = self._found
        own = (self._repository.common_dir,) if self._repository.plain else ()
        return (*found.packs, *found.states, *own, *(() if found.keeps_keys else found.keys))

    def _in_words(self) -> str:
        return f"{count(self._found.snapshots, 'snapshot')} ({size(self._found.stored)})"


PROGRAM = "git-envhist"
EXCLUDED = "--exclude=refs/envhist/*"
ALIAS = f"log --graph --oneline {EXCLUDED} --exclude=refs/notes/envhist/* --all"
DONE = {"git": "git's hooks", ALL_AGENTS: "data of agent hooks"}


def _agents(help: str) -> Decorator:  # noqa: A002 - as for `option`
    """Declare `--agent <name>`, which can be repeated."""
    return option("--agent", "agents", metavar="<name>", multiple=True, help=help)


@command(
    "install", "git envlog install [--agent <name>]... [--global] [--shell] [--watcher] [-n]", writes=True
)
@_agents("claude-code, codex, gemini, cursor, copilot, opencode, antigravity")
@option("--global", "everywhere", is_flag=True, help="add hooks for all your repositories")
@option("--worktrees", is_flag=True, help="with --agent claude-code: its worktrees are forks")
@option("--shell", is_flag=True, help="link the man pages and shell completions instead")
@option("--watcher", is_flag=True, help="start a process that makes captures faster instead")
@force("change hooks that are shared or committed too")
@dry_run("print what would be written; write nothing")
def install_command(session: Session, agents: tuple[str, ...], **options: bool) -> None:
    """Add hooks that take a snapshot after each commit, merge, checkout and rebase.

    The pre-push hook does nothing unless envhist.autoPush is set.
    """
    session.no_paths()
    if _is_for_shells(agents, options):
        install_shell(session, dry_run=options["dry_run"])
        return
    if _is_for_watcher(agents, options):
        install_watcher(session, everywhere=options["everywhere"], dry_run=options["dry_run"])
        return
    wanted = named_integrations(agents)
    if options["worktrees"] and list(agents) not in (["claude-code"], ["claude"]):
        raise UsageError(
            "--worktrees is for claude-code only", hint="git envlog install --agent claude-code --worktrees"
        )
    place = place_of(
        session,
        everywhere=options["everywhere"],
        worktrees=options["worktrees"],
        force=options["force"],
    )
    _print_result(
        session, install(place, wanted, dry_run=options["dry_run"]), options["dry_run"], "installed"
    )
    if not (session.json or agents or options["dry_run"]):
        _offer_alias(session)
    if not session.json and not agents and sys.stderr.isatty():
        print_error_line(
            "hint: a snapshot is taken shortly after each commit; see the last ones: git envlog status"
        )
    if not session.json and sys.stderr.isatty() and not finds_manual():
        print_error_line(
            "note: man pages and shell completions are not linked; link them: git envlog install --shell"
        )


def _offer_alias(session: Session) -> None:
    """Print an alias of git log without snapshots, unless the configuration has one."""
    try:
        config = session.history.repository.read_config()
    except NotARepository:
        config = ()
    if not any(key.startswith("alias.") and EXCLUDED in (value or "") for key, value in config):
        print_error_line("note: 'git log --all' lists snapshots too; an alias without them:")
        print_error_line(f"  git config --global alias.la '{ALIAS}'")


@command(
    "uninstall",
    "git envlog uninstall [--agent <name>]... [--global] [--history [--force]] [--shell] [--watcher] [-n]",
    writes=True,
)
@_agents("remove only the hooks of this agent; repeatable")
@option("--global", "everywhere", is_flag=True, help="remove the hooks for all your repositories")
@option("--history", is_flag=True, help="also delete all snapshots, notes and keys")
@option("--shell", is_flag=True, help="remove the links of install --shell instead")
@option("--watcher", is_flag=True, help="stop the process of install --watcher instead")
@option("--yes", is_flag=True, help="with --history: do not ask for confirmation")
@ignore_hidden_processes("with --history: ")
@dry_run("print what would be written; write nothing")
def uninstall_command(session: Session, agents: tuple[str, ...], **options: bool) -> None:
    """Remove what 'install' added. Files that were not edited since are exactly as they were before."""
    session.no_paths()
    if _is_for_shells(agents, options):
        uninstall_shell(session, dry_run=options["dry_run"])
        return
    if _is_for_watcher(agents, options):
        uninstall_watcher(session, everywhere=options["everywhere"], dry_run=options["dry_run"])
        return
    if options["history"] and (agents or options["everywhere"]):
        raise UsageError(
            "--history cannot be combined with --global or --agent", hint="git envlog uninstall --history"
        )
    # A history without git has no hooks, and can be deleted too.
    place = place_of(session, everywhere=options["everywhere"], only_looks=options["history"])
    wanted = named_integrations(agents) if agents else all_integrations()
    dry_run = options["dry_run"]
    if not options["history"]:
        _print_result(session, uninstall(place, wanted, dry_run=dry_run), dry_run, "removed")
        if options["everywhere"] and not agents:
            _name_repositories_with_hooks(place)
        return

    history = HistoryRemoval(session.history.repository, force=options["force"])
    if not (dry_run or options["yes"]):
        history.ask()
    is_plain = session.history.repository.plain
    done = [] if is_plain else uninstall(place, wanted, dry_run=dry_run)
    if not dry_run:
        history.carry_out()
    _print_result(session, done, dry_run, "removed", history)


def _name_repositories_with_hooks(place: InstallTarget) -> None:
    """Print the repositories that have hooks of their own besides those of the user."""
    for common_dir in place.trusted.repositories():
        try:
            repository = Repository.open(os.path.dirname(common_dir))
            found = parts(InstallTarget(repository, place.environ, place.program))
        except EnvhistError:
            continue
        if found:
            where = shlex.quote(repository.root)
            print_error_line(
                f"note: hooks are still installed in '{escape(repository.root)}': "
                f"git -C {escape(where)} envlog uninstall"
            )


def _is_for_shells(agents: Sequence[str], options: dict[str, bool]) -> bool:
    others = ("everywhere", "history", "worktrees", "watcher")
    if options["shell"] and (agents or any(options.get(name) for name in others)):
        raise UsageError("--shell can be combined with --dry-run only", hint="git envlog install --shell")
    return options["shell"]


def _is_for_watcher(agents: Sequence[str], options: dict[str, bool]) -> bool:
    if options["watcher"] and (agents or options.get("history") or options.get("worktrees")):
        raise UsageError(
            "--watcher can be combined with --global and --dry-run only",
            hint="git envlog install --watcher",
        )
    return options["watcher"]


def finds_manual() -> bool:
    """Return whether man finds the pages: next to the programs on the PATH, or in the user's directory."""
    from git_envhist.integrations.shell_links import (  # loaded late: keeps help fast
        ShellFilesMissing,
        missing_links,
        shell_links,
    )

    nearby = shutil.which("git-envlog")
    if nearby and os.path.isfile(f"{os.path.dirname(os.path.dirname(nearby))}/share/man/man1/git-envlog.1"):
        return True
    try:
        return not any("/man/" in link.place for link in missing_links(shell_links(os.environ)))
    except ShellFilesMissing:
        return True


def place_of(
    session: Session,
    *,
    everywhere: bool = False,
    worktrees: bool = False,
    force: bool = False,
    only_looks: bool = False,
) -> InstallTarget:
    """Return the place to install to: this repository, or the user's configuration."""
    try:
        repository = session.history.repository
    except NotARepository:
        if not everywhere:
            raise
        repository = None
    if repository is not None and repository.plain and not (everywhere or only_looks):
        raise EnvhistError(
            f"'{repository.root}' is not a git repository: git runs no hooks there",
            hint="take snapshots by hand, or with an agent: git envlog install --global --agent <name>",
        )
    return InstallTarget(repository, os.environ, own_program(), everywhere, worktrees, force)


def own_program() -> str:
    """Return the absolute path of `git-envhist` of this installation."""
    nearby = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), PROGRAM)
    found = nearby if os.access(nearby, os.X_OK) else shutil.which(PROGRAM)
    if found is None:
        raise EnvhistError(
            f"'{PROGRAM}' is neither next to '{sys.argv[0]}' nor on the PATH",
            hint="install git-envhist again",
        )
    return os.path.abspath(found)


def _print_result(
    session: Session,
    done: Sequence[IntegrationChange],
    dry_run: bool,
    word: str,
    history: HistoryRemoval | None = None,
) -> None:
    if not dry_run:
        session.done("it is " + word)
    if session.json:
        value = {"schema": 1, "dry_run": dry_run, "integrations": [_as_json(one) for one in done]}
        session.print_json(value if history is None else {**value, "history": history.as_json()})
        return
    if dry_run:
        for line in patch_lines(edit for one in done for edit in one.edits):
            session.verbatim(escape(line, lines=True))
        for path in (path for one in done for path in one.left):
            session.line(f"remove {escape(path)}/")
    for one in done:
        _print_one(session, one, word, dry_run)
    if word != "installed" and history is None and not any(one.edits or one.left for one in done):
        session.line("no hooks of git-envhist are installed here")
    if history is not None:
        for line in history.lines(dry_run):
            session.line(line)


def _print_one(session: Session, one: IntegrationChange, word: str, dry_run: bool) -> None:
    if not dry_run and (one.edits or one.left):
        session.line(f"{DONE.get(one.name, one.name)}: {word}")
        for edit in one.edits:
            session.line(f"  {_verb(edit)} {escape(edit.path)}")
        for path in one.left:
            session.line(f"  removed {escape(path)}/")
    elif not one.edits and word == "installed":
        session.line(f"{DONE.get(one.name, one.name)}: nothing to do, already installed")
    for remark in one.remarks:
        print_error_line(f"note: {escape(remark)}")


def _verb(edit: FileEdit) -> str:
    if edit.after is None:
        return "removed"
    return "wrote" if edit.before is None else "changed"


def _as_json(one: IntegrationChange) -> dict[str, object]:
    return {
        "name": one.name,
        "changes": [*map(_edit_json, one.edits), *map(_left_json, one.left)],
        "remarks": [*map(escape_invalid, one.remarks)],
    }


def _edit_json(edit: FileEdit) -> dict[str, object]:
    after = edit.after
    return {
        "path": escape_invalid(edit.path),
        "change": _verb(edit),
        "mode": None if after is None or after.mode is None else f"{after.mode:04o}",
        "content": None if after is None else escape_invalid(after.data.decode("utf-8", "surrogateescape")),
    }


def _left_json(path: str) -> dict[str, object]:
    return {"path": escape_invalid(path), "change": "removed", "mode": None, "content": None}


# `git envlog install --shell`: link man pages and completions for this user.

ZSH = "zsh/site-functions"
WOULD = {"linked": "would link", "removed": "would remove"}
"""The verb of a dry run for each verb of a result."""


def install_shell(session: Session, *, dry_run: bool) -> None:
    """Create missing links, and print what a link cannot do."""
    wanted = shell_links(os.environ)
    made = missing_links(wanted)
    if not dry_run:
        create_links(made)
    _print_shell_links(session, made, dry_run, "linked")
    if session.json:
        return
    if not made:
        session.line("manual and completions: nothing to do, already installed")
    for link in wanted:
        if link.is_foreign:
            print_error_line(f"note: skipped, not created by git-envhist: {escape(link.place)}")
    place = next(os.path.dirname(link.place) for link in wanted if ZSH in link.place)
    print_error_line(f"note: add this line to .zshrc before compinit: fpath=({escape(place)} $fpath)")


def uninstall_shell(session: Session, *, dry_run: bool) -> None:
    """Remove the links to this installation."""
    ours = [link for link in shell_links(os.environ) if os.path.islink(link.place) and link.is_linked]
    _print_shell_links(session, ours if dry_run else remove_links(ours), dry_run, "removed")
    if not ours and not session.json:
        session.line("no man pages or completions are linked")


def _print_shell_links(session: Session, text: Sequence[ShellLink], dry_run: bool, word: str) -> None:
    if session.json:
        shown = [
            {"path": escape_invalid(link.place), "change": word, "target": escape_invalid(link.target)}
            for link in text
        ]
        session.print_json({"schema": 1, "dry_run": dry_run, "links": shown})
        return
    for link in text:
        done = WOULD[word] if dry_run else word
        session.line(f"  {done} {escape(link.place)} -> {escape(link.target)}")
