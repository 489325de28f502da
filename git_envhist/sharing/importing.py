"""An import: what a file of an export holds comes in beside ours, checked whole before anything of it is used.

It is treated as a fetch from somebody nobody knows: into the repository of what came from elsewhere, under a name of
its own, and what no key of ours signed is a claim. What stands there already is never written over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from git_envhist.errors import Damaged, Refused, UsageError
from git_envhist.model.sharing import FetchOutcome, ImportResult
from git_envhist.store.archive import read_archive
from git_envhist.store.bundles import CheckedBundle, publish, take_bundle, workplace
from git_envhist.store.chain import Tell, read_chain
from git_envhist.store.fetched import FETCHED_NOTES, REMOTES, FetchedStore
from git_envhist.store.git import Git
from git_envhist.store.remoteparts import NOBODY
from git_envhist.store.remotes import NAME, last
from git_envhist.store.repository import SYNCED, Repository

PLACE = "import"
ENDINGS = re.compile(r"(\.envhist)?(\.tar)?(\.zst)?\Z")
MOST_NAMES = 1000


class NameTaken(Refused):
    """Something else goes by the name under which an import was to stand."""

    code = "name-taken"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"'{name}' {why}", hint="git envlog import --as <another name> <file>")


def import_archive(
    repository: Repository, path: str, name: str | None, tell: Tell, waiting: Callable[[], None] | None = None
) -> ImportResult:
    """Bring the timelines of a file in beside ours, as `<name>/<timeline>`; the usual name is the file's."""
    fetched = FetchedStore.of(repository)
    if name is not None:
        _refuse_remote(repository, fetched, name)
    with read_archive(path) as bundle, workplace(repository.common_state, PLACE, waiting) as work:
        objects = os.path.join(work, "objects")
        fetched.ensure()
        taken = take_bundle(bundle, fetched.path, objects, repository.object_format)
        counts = {timeline: _count(taken, timeline, tell) for timeline in taken.heads}
        with fetched.receiving(waiting):
            chosen = name or _free_name(repository, fetched, path, taken)
            moves = _moves(fetched, chosen, taken)
            before = fetched.packs()
            publish(objects, fetched.objects_dir)
            fetched.vouch(fetched.packs() - before)
            _put(fetched, chosen, taken)
    told = tuple((f"{chosen}/{timeline}", moves[timeline], counts[timeline]) for timeline in sorted(counts))
    return ImportResult(path, chosen, told)


def _count(taken: CheckedBundle, timeline: str, tell: Tell) -> int:
    """How many moments there are; each is read, and what cannot be is told."""
    count = sum(1 for _ in read_chain(taken.git, taken.heads[timeline], notes=False, tell=tell))
    if not count:
        raise Damaged(f"'{timeline}' holds no moment that can be read: nothing was taken in")
    return count


def _free_name(repository: Repository, fetched: FetchedStore, path: str, taken: CheckedBundle) -> str:
    """The file's name, or with a number behind: under it stands nothing, or what this only adds to."""
    stem = ENDINGS.sub("", os.path.basename(path))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.").replace("..", "-")[:60] or "import"
    plain = plain if NAME.fullmatch(plain) and not plain.endswith(".lock") else "import"
    for number in range(1, MOST_NAMES):
        name = plain if number == 1 else f"{plain}-{number}"
        if not _is_remote(repository, fetched, name) and _adds_only(fetched, name, taken):
            return name
    raise NameTaken(plain, "and all names like it are taken")


def _adds_only(fetched: FetchedStore, name: str, taken: CheckedBundle) -> bool:
    there = _there(fetched, name)
    return all(
        there.get(line) in (None, oid) or _leads_on(fetched, taken, there[line], oid)
        for line, oid in taken.heads.items()
    )


def _moves(fetched: FetchedStore, name: str, taken: CheckedBundle) -> Mapping[str, FetchOutcome]:
    if not _adds_only(fetched, name, taken):
        raise NameTaken(name, "holds other moments of the same timeline")
    there = _there(fetched, name)
    return {line: _arrival(there.get(line), oid) for line, oid in taken.heads.items()}


def _arrival(before: str | None, after: str) -> FetchOutcome:
    if before is None:
        return FetchOutcome.NEW
    return FetchOutcome.SAME if before == after else FetchOutcome.UPDATED


def _there(fetched: FetchedStore, name: str) -> dict[str, str]:
    place = f"{REMOTES}{name}/"
    return {ref.removeprefix(place): oid for ref, oid in fetched.refs(place).items()}


def _leads_on(fetched: FetchedStore, taken: CheckedBundle, old: str, new: str) -> bool:
    both = Git(fetched.path, None, alternates=(os.fsdecode(taken.git.environment[b"GIT_OBJECT_DIRECTORY"]),))
    return both.ask("merge-base", "--is-ancestor", old, new).status == 0


def _put(fetched: FetchedStore, name: str, taken: CheckedBundle) -> None:
    fetched.own(name)
    lines = [f"update {REMOTES}{name}/{line} {oid}\n" for line, oid in taken.heads.items()]
    fetched.git.run(*SYNCED, "update-ref", "--no-deref", "--stdin", stdin="".join(lines).encode("ascii"))
    for line, oid in taken.notes.items():
        _join_notes(fetched, f"{FETCHED_NOTES}{name}/{line}", oid)
    # The file may be gone tomorrow.
    fetched.settle(
        [f"{REMOTES}{name}/{line}" for line in taken.heads]
        + [f"{FETCHED_NOTES}{name}/{line}" for line in taken.notes]
    )


def _join_notes(fetched: FetchedStore, ref: str, new: str) -> None:
    """What is said now, and what was said in an earlier file: records are lines, each of them stays once."""
    if ref not in fetched.refs(ref):
        fetched.git.run(*SYNCED, "update-ref", "--no-deref", ref, new)
        return
    came = f"{FETCHED_NOTES}import-{os.urandom(6).hex()}"
    fetched.git.run("update-ref", "--no-deref", came, new)
    words = (*SYNCED, "notes", f"--ref={ref}", "merge", "--quiet", "--strategy=cat_sort_uniq", came)
    try:
        fetched.git.run(*words, environment=NOBODY)
    finally:
        fetched.git.run("update-ref", "-d", came)


def _refuse_remote(repository: Repository, fetched: FetchedStore, name: str) -> None:
    if not NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
        raise UsageError(f"not a name: '{name}'", hint="letters, digits, dots and dashes serve")
    if _is_remote(repository, fetched, name):
        raise NameTaken(name, "is a remote")


def _is_remote(repository: Repository, fetched: FetchedStore, name: str) -> bool:
    return last(repository.read_config(), f"remote.{name}.url") is not None or fetched.knows(name)
