"""Find the snapshots whose summary contains a text: when did flask appear?"""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.capturing.factdiff import compare_facts
from git_envhist.capturing.factsealing import FindFactsKey
from git_envhist.history.factkeys import place_of
from git_envhist.history.facts import fact_words
from git_envhist.history.story import changes_phrase
from git_envhist.model import Snapshot
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile


def filter_by_summary(
    git: Git, found: Sequence[Snapshot], text: str, find_key: FindFactsKey
) -> list[Snapshot]:
    """Those whose story contains a text: the line of the list, or any fact that differs from the snapshot before."""

    def tells(snapshot: Snapshot) -> bool:
        if text in changes_phrase(snapshot):
            return True
        if not snapshot.parent:
            return False
        changes = compare_facts(reader, snapshot.parent, snapshot.commit, find_key)
        return any(text in f"{one.probe} {place_of(one)} {fact_words(one)}" for one in changes)

    with CatFile(git) as reader:
        return [snapshot for snapshot in found if tells(snapshot)]
