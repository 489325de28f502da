"""The facts of two snapshots side by side; texts with one id are not read."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.errors import Damaged
from git_envhist.history.facts import pair_facts
from git_envhist.model import Change, FactChange
from git_envhist.store.compare import compare
from git_envhist.store.facts import NAME, differing_facts
from git_envhist.store.git import Git
from git_envhist.store.layout import FACTS, RESERVED
from git_envhist.store.objects import CatFile
from git_envhist.store.trees import FILE, decode_tree

PLACE = (RESERVED + b"/" + FACTS).decode("ascii")


def fact_ids(reader: CatFile, tree: str) -> dict[str, str]:
    """By probe, the id of what a commit or tree, given by its full id, says; nothing where it has no facts."""
    answer = reader.read(f"{tree}:{PLACE}")
    if answer is None or answer.kind != "tree":
        return {}
    entries = decode_tree(answer.data, len(tree) // 2)
    named = ((name.decode("utf-8", "replace"), mode, oid.hex()) for name, mode, oid in entries)
    return {name: oid for name, mode, oid in named if mode == FILE and NAME.match(name)}


def compare_facts(reader: CatFile, before: str, after: str) -> tuple[FactChange, ...]:
    """What the facts of two commits or trees differ in; of what either says nothing of, nothing is claimed."""
    old, new = fact_ids(reader, before), fact_ids(reader, after)
    changes: list[FactChange] = []
    for probe in sorted(old.keys() & new.keys()):
        if old[probe] != new[probe]:
            gone, come = differing_facts(probe, _text(reader, old[probe]), _text(reader, new[probe]))
            changes += pair_facts(gone, come)
    return tuple(changes)


def compare_moments(
    git: Git, before: str | None, after: str, pathspecs: Sequence[bytes]
) -> tuple[tuple[Change, ...], tuple[FactChange, ...]]:
    """What differs between two trees: the files, and what is told beside them."""
    return compare(git, before, after, pathspecs=pathspecs), changed_facts(git, before, after, pathspecs)


def changed_facts(
    git: Git, before: str | None, after: str, pathspecs: Sequence[bytes] = ()
) -> tuple[FactChange, ...]:
    """What the facts of two trees differ in; with pathspecs, spelled as from the top, in the directories they mean."""
    if before is None:
        return ()
    with CatFile(git) as reader:
        changes = compare_facts(reader, before, after)
    if not pathspecs or not changes:
        return changes
    from git_envhist.store.pathspecs import matching  # loaded late: few ask for paths

    places = sorted({change.at for change in changes if change.at})
    meant = matching(git, places, places, pathspecs) if places else frozenset()
    return tuple(change for change in changes if change.at in meant)


def _text(reader: CatFile, oid: str) -> bytes:
    answer = reader.read(oid)
    if answer is None or answer.kind != "blob":
        raise Damaged(f"the facts '{oid}' are missing")
    return answer.data
