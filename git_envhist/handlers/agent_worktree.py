"""Make and remove the worktrees of an agent: `git-envhist agent-worktree create|remove`, as hooks of Claude Code.

`create` captures the project and forks it, so that the worktree starts with `.env`, `node_modules` and `.venv` in
place; it prints the directory. If that fails, it makes a plain worktree: the agent is never blocked. In a repository
that no person approved, git runs no hook and no filter of that repository for it. `remove` captures the worktree under
a name and removes it then; what cannot be captured is not removed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

from git_envhist.api import EnvHistory
from git_envhist.consent import UNATTENDED, refuse_place, trusted_list
from git_envhist.discovery import open_repository
from git_envhist.errors import EnvhistError, NotARepository, Refused
from git_envhist.git.process import SAFE_GIT, GitResult, run_to_end
from git_envhist.git.repository import Repository
from git_envhist.handlers.agent_client import read_input
from git_envhist.handlers.name_removed_worktree import REMOVED, name_removed_worktree, worktree_slug
from git_envhist.model import Snapshot, Trigger
from git_envhist.printable_text import escape
from git_envhist.remote.remotes import own_config

CREATE, REMOVE = "create", "remove"
MAX_TRIES = 100
MAX_CAPTURES = 5
BRANCH = "worktree-"


def handle_agent_worktree(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Handle the hook with its JSON on standard input; return the exit status."""
    own = {**environ, UNATTENDED: "1"}
    try:
        value = json.loads(read_input(0))
        if not isinstance(value, dict) or tuple(words) not in ((CREATE,), (REMOVE,)):
            raise Refused(
                "the event is not JSON of a hook", hint="git-envhist agent-worktree create|remove <event.json"
            )
        if words[0] == CREATE:
            print(_create(value, own))
        else:
            _remove(value, own)
    except (EnvhistError, ValueError, OSError) as error:
        print(escape(f"git-envhist: {error}"), file=sys.stderr)
        return 1
    return 0


def _create(value: Mapping[str, object], environ: dict[str, str]) -> str:
    project = _directory(environ.get("CLAUDE_PROJECT_DIR")) or _directory(value.get("cwd")) or os.getcwd()
    repository = open_repository(project, environ).repository
    name = worktree_slug(value.get("name"))
    try:
        directory, branch = _free_place(repository, f"{repository.root}-{name}", name)
        refuse_place(directory, repository, environ)
        _require_named(repository, environ)
        history = EnvHistory.open(project, environ=environ, workers="fork", one_command=True)
        captured = history.capture(f"before worktree {name}", if_changed=True, trigger=Trigger.AGENT)
        made = history.fork(
            captured.snapshot or "@", directory, branch=branch, relocate=True, trigger=Trigger.AGENT
        )
        for warning in made.forked.warnings if made.forked else ():
            print(escape(f"git-envhist: {warning}"), file=sys.stderr)
        return made.repository.root
    except (EnvhistError, OSError) as error:
        print(escape(f"git-envhist: {error}; the worktree has tracked files only"), file=sys.stderr)
        return _plain_worktree(repository, name, environ)


def _remove(value: Mapping[str, object], environ: dict[str, str]) -> None:
    directory = _directory(value.get("worktree_path"))
    if directory is None:
        raise Refused("the event names no worktree_path", hint="call it as a WorktreeRemove hook")
    repository = open_repository(directory, environ).repository
    _require_named(repository, environ)
    history = EnvHistory.open(directory, environ=environ, workers="fork", one_command=True)
    name = _name_given_just_now(history) or name_removed_worktree(
        history, directory, _capture_all(history, directory)
    )
    # The current directory may be in the worktree.
    places = ["-C", "/", f"--git-dir={repository.common_dir}"]
    done = _git_with_hooks(*places, "worktree", "remove", "--force", directory)
    if done.status:
        raise Refused(
            f"captured as '{name}', but not removed: {done.err.decode('utf-8', 'replace').strip()}",
            hint=f"git worktree remove --force {directory}",
        )


def _name_given_just_now(history: EnvHistory) -> str | None:
    """Return the name that the hook before `ExitWorktree` gave, if nothing has changed since."""
    newest = next(iter(history.log(1)), None)
    name = next((one for one in newest.names if one.startswith(REMOVED)), None) if newest else None
    if newest is None or name is None or not newest.complete:
        return None
    done = history.capture(f"before {name}", if_changed=True)
    return name if done.snapshot is None and not done.missing else None


def _capture_all(history: EnvHistory, directory: str) -> Snapshot:
    """Capture until nothing changes any more; refuse if something could not be captured, because it would be lost."""
    intent = f"worktree {os.path.basename(directory)} before it was removed"
    # The first capture is made in any case: whether a new path cannot be read is known only from a snapshot.
    last = history.capture(intent).snapshot
    for _ in range(MAX_CAPTURES):
        if last is None or not last.complete:
            raise Refused("not removed: a part of the worktree cannot be read", hint="git envlog show")
        newer = history.capture(intent, if_changed=True).snapshot
        if newer is None:
            return last
        last = newer
    raise Refused("not removed: the worktree keeps changing", hint="end the programs that write there")


def _free_place(repository: Repository, base: str, name: str) -> tuple[str, str]:
    """Return a directory that does not exist, and a branch for it that does not exist either."""
    for number in range(1, MAX_TRIES):
        tail = "" if number == 1 else f"-{number}"
        branch = f"{BRANCH}{name}{tail}"
        known = repository.git.try_run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
        if not os.path.lexists(base + tail) and known.status != 0:
            return base + tail, branch
    raise Refused(f"too many worktrees are called '{name}'", hint="git worktree list")


def _plain_worktree(repository: Repository, name: str, environ: Mapping[str, str]) -> str:
    """Make a worktree of tracked files where Claude Code itself makes them; return its directory."""
    base = os.path.join(repository.root, ".claude", "worktrees", name)
    directory, branch = _free_place(repository, base, name)
    words = ("worktree", "add", "--quiet", "-b", branch, directory)
    if trusted_list(environ).has_repository(repository.common_dir):
        done = _git_with_hooks("-C", repository.root, *words)
    else:
        # The repository may be part of an archive, with programs of its own.
        done = repository.git.try_run(*_without_filters(repository), *words)
    if done.status:
        reason = done.err.decode("utf-8", "replace").strip()
        raise Refused(f"git made no worktree: {reason}", hint="git worktree list")
    return directory


def _without_filters(repository: Repository) -> list[str]:
    """Return options of git that switch off the filters of the repository's own configuration."""
    keys = {key for key, _ in own_config(repository) if key.startswith("filter.")}
    names = sorted({key.removeprefix("filter.").rpartition(".")[0] for key in keys})
    if any("=" in name for name in names):
        raise Refused("a filter has '=' in its name, and no person approved it", hint="git envlog capture")
    switches = ("smudge=", "clean=", "process=", "required=false")
    return [word for name in names for switch in switches for word in ("-c", f"filter.{name}.{switch}")]


def _git_with_hooks(*words: str) -> GitResult:
    """Run git as the user would: with the user's environment, hooks and filters."""
    return run_to_end([*SAFE_GIT, *words], os.environb)


def _require_named(repository: Repository, environ: Mapping[str, str]) -> None:
    if not trusted_list(environ).has_repository(repository.common_dir):
        raise NotARepository(f"no person installed hooks in the repository of '{repository.root}'")


def _directory(value: object) -> str | None:
    usable = isinstance(value, str) and value.startswith("/") and "\0" not in value
    return value if usable and isinstance(value, str) and os.path.isdir(value) else None
