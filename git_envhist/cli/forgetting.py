"""`git envlog uninstall --history`: every snapshot, note, pack and key of this repository goes, after a question."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from git_envhist.beginning import unregister_directory
from git_envhist.capturing.attendance import trusted_list
from git_envhist.cli.failure import ask_for, warn
from git_envhist.cli.terminal import escape, escape_invalid
from git_envhist.cli.words import count, size
from git_envhist.errors import Refused
from git_envhist.store.repository import Repository
from git_envhist.triggers.forgetting import forget_history, look_at_history
from git_envhist.values import replace


class HistoryRemoval:
    """A history that is to go: asked for, carried out, told."""

    def __init__(self, repository: Repository, *, force: bool = False) -> None:
        self._repository = replace(repository, ignores_hidden=force)
        self._found = look_at_history(repository, os.environ)

    def ask(self) -> None:
        """Go on only where somebody at a terminal types the word."""
        sentence = f"{self._in_words()} would be gone for good"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused(sentence, hint="if that is meant: git envlog uninstall --history --yes")
        ask_for(f"{sentence}, with the keys. Type 'yes': ")
        if sys.stdin.readline().strip() != "yes":
            raise Refused("nothing was removed", hint="'yes' is the word that is waited for")

    def carry_out(self) -> None:
        for remark in forget_history(self._repository, self._found):
            warn(remark)
        trusted_list(os.environ).forget(self._repository.common_dir)
        if self._repository.plain:
            unregister_directory(self._repository, os.environ)

    def lines(self, dry_run: bool) -> Iterator[str]:
        if not dry_run:
            yield f"forgotten: {self._in_words()}"
            return
        for what in (*self._found.refs, *self._files()):
            yield f"remove {escape(what)}"

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
        return (*found.packs, *found.states, *own, *(() if found.keys_stay else found.keys))

    def _in_words(self) -> str:
        return f"{count(self._found.snapshots, 'snapshot')} ({size(self._found.stored)})"
