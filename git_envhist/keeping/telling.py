"""What a snapshot says of the one before it, told anew where that is another one."""

from __future__ import annotations

from git_envhist.capturing.factdiff import brief_facts
from git_envhist.capturing.factsealing import FindFactsKey
from git_envhist.errors import EnvhistError, GitKilled
from git_envhist.facts import kinds
from git_envhist.history.diff import count
from git_envhist.history.story import describe_counts
from git_envhist.history.summary import summarize
from git_envhist.model import Change, ChangeCount, EntryKind
from git_envhist.store.compare import compare
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.relinking import Trailers

CHANGED, STORY = "Env-Changed", "Env-Story"


class SummaryWriter:
    """Tells what differs between two trees; each pair is compared once."""

    def __init__(self, git: Git, find_key: FindFactsKey) -> None:
        self.git = git
        self._find_key = find_key
        self.warnings: list[str] = []
        self._told: dict[tuple[str | None, str], Trailers] = {}

    def __call__(self, before: str | None, after: str) -> Trailers:
        """The trailers that say it; none, where one of the two cannot be read."""
        pair = (before, after)
        if pair not in self._told:
            try:
                self._told[pair] = self._tell(before, after)
            except GitKilled:
                raise  # it has not moved yet, and could be told
            except EnvhistError as error:
                # What is damaged is no worse for being linked anew.
                self.warnings.append(f"what changed could not be told: {error.message}")
                self._told[pair] = {}
        return self._told[pair]

    def _tell(self, before: str | None, after: str) -> Trailers:
        changes = compare(self.git, before, after, brief=True)
        changed = count(changes)
        if before is None:
            files = sum(_is_file(change) for change in changes)
            return {
                CHANGED: _counts(changed),
                STORY: describe_counts(ChangeCount(added=files), first=True),
            }
        with CatFile(self.git) as reader:
            facts = brief_facts(reader, before, after, self._find_key)
        return {CHANGED: _counts(changed), STORY: summarize(facts, changed, kinds(), names=False)}


def _is_file(change: Change) -> bool:
    return change.after is not None and change.after.kind is not EntryKind.DIRECTORY


def _counts(changed: ChangeCount) -> str:
    return f"+{changed.added} ~{changed.modified} -{changed.removed}"
