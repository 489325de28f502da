"""The watcher of one working tree: the program that `git envlog watcher start` and captures start in the background."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from git_envhist.api import EnvHistory
from git_envhist.discovery import OBJECT_FORMAT, OpenedRepository, open_repository
from git_envhist.errors import EnvhistError
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.paths import join
from git_envhist.watcher.server import WatcherProcess
from git_envhist.watcher.start import note_failure
from git_envhist.watcher.watched_directories import WatchedScope
from git_envhist.worktree.path_patterns import ignore_rules


def run_watcher_process(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Watch the working tree that `<kind> <root> <git_dir> <common_dir>` name; return the exit status."""
    kind, root, git_dir, common_dir = words
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def opened() -> EnvHistory:
        if kind == "git":
            found = open_repository(root, {**environ, "GIT_DIR": git_dir, "GIT_WORK_TREE": root})
        else:
            git = Git(common_dir, root)
            library = kind == "library"
            found = OpenedRepository(
                Repository(root, git_dir, common_dir, OBJECT_FORMAT, git, plain=True, library=library)
            )
        return EnvHistory(found, environ, workers="here", directory=root, one_command=True)

    try:
        history = opened()
        state, idle = history.repository.state, history.settings.watcher_idle
        why = WatcherProcess(state, lambda: watched_scope(opened()), idle).run()
    except EnvhistError as error:
        return error.exit_code
    if why:
        with suppress(OSError, EnvhistError):
            note_failure(state, why)
    return 0


def watched_scope(history: EnvHistory) -> WatchedScope:
    """Return the directories that a capture enters."""
    scope = history.capturing.read_scope(None)
    ignored = ignore_rules(list(scope.ignore), list(scope.exclude))
    pruned = frozenset(scope.pruned)

    def is_left_out(directory: bytes, name: bytes) -> bool:
        return join(directory, name) in pruned or (ignored is not None and ignored(directory, name, True))

    return WatchedScope(scope.naming, scope.bases, is_left_out, why_not=_why_not(scope.crossed))


def _why_not(crossed: tuple[bytes, ...]) -> str:
    return "file systems mounted inside are captured (envhist.crossMounts)" if crossed else ""
