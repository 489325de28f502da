"""A fetch: what others share comes in beside ours, never over it, and its contents only when they are wanted.

The names of the other side's refs are read first, and only those that are spelled as ours are asked for, one by one,
into places that say where they came from. A fetch that was broken off leaves whole timelines; the next goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from git_envhist.errors import GitFailed, Refused
from git_envhist.model.sharing import Arrival, Fetch
from git_envhist.sharing.bringing import ask_for, lists_of, transport_for
from git_envhist.store.arrivals import Arrivals
from git_envhist.store.fetched import NOTES, REMOTES, Fetched, without_fetched
from git_envhist.store.git import Git
from git_envhist.store.othernotes import list_crossed
from git_envhist.store.remotefailures import RemoteFailed, why_nothing_came
from git_envhist.store.remoterefs import HEADS, There, read_there
from git_envhist.store.remotes import OUR_REFS, Transport, find_remote
from git_envhist.store.repository import Repository

LAZY = ("--filter=blob:none",)
WHOLE = ("--no-filter",)
TELL_NOTHING = ("-c", "fetch.negotiationAlgorithm=noop")
AT_ONCE = 1000


def fetch(
    repository: Repository,
    environ: Mapping[str, str],
    directory: str,
    word: str | None,
    *,
    full: bool = False,
) -> Fetch:
    """Bring the timelines of a remote, with their notes, up to date here; `full`: with all that they hold."""
    remote = find_remote(repository, word, directory)
    fetched = Fetched.of(repository)
    fetched.ensure()
    with fetched.receiving():
        if fetched.was_imported(remote.name):
            raise Refused(
                f"'{remote.name}' names what was imported from a file",
                hint=f"call the remote something else: git remote rename {remote.name} <name>",
            )
        fetched.know(remote.name, remote.url)
        transport = transport_for(repository, fetched, remote, environ)
        return _Fetch(fetched, transport, without_fetched(repository).git, full).run()


class _Fetch:
    def __init__(self, fetched: Fetched, transport: Transport, own: Git, full: bool) -> None:
        self._fetched = fetched
        self._own = own
        self._transport = transport
        self._remote = transport.remote
        self._full = full
        self._heads = f"{REMOTES}{self._remote.name}/"
        self._notes = f"{NOTES}{self._remote.name}/"

    def run(self) -> Fetch:
        there = read_there(self._transport.list_refs(*OUR_REFS[:2]))
        self._fetched.mend()
        before = self._here(self._heads), self._here(self._notes)
        standing = self._fetched.refs("refs/")
        # What came with a fetch that was broken off was not looked at: then all is new.
        again = self._fetched.begin(self._remote.name)
        arrivals = Arrivals(self._fetched, again=again)
        # Notes come whole, and before what they are about.
        self._take(there.notes, before[1], NOTES, self._notes, WHOLE)
        self._take(there.heads, before[0], HEADS, self._heads, LAZY)
        arrivals.look(self._remote, self._here(self._notes).values(), standing)
        self._forget(there, *before)
        after = self._here(self._heads)
        fresh = [oid for name, oid in after.items() if again or before[0].get(name) != oid]
        said = self._here(self._notes)
        fresh_words = {name for name in {*said, *before[1]} if again or said.get(name) != before[1].get(name)}
        if fresh_words:
            list_crossed(self._fetched, self._own, {f"{self._remote.name}/{name}" for name in fresh_words})
        full = self._contents(fresh, [oid for oid in before[0].values() if oid not in fresh], after)
        arrivals.look(self._remote, self._here(self._notes).values(), standing)
        self._fetched.end(self._remote.name)
        told = tuple(
            (f"{self._remote.name}/{name}", self._arrival(before[0].get(name), after.get(name)))
            for name in sorted({*before[0], *after})
        )
        return Fetch(self._remote, told, there.refused, full)

    def _here(self, place: str) -> dict[str, str]:
        return {ref.removeprefix(place): oid for ref, oid in self._fetched.refs(place).items()}

    def _take(
        self,
        there: Mapping[str, str],
        here: Mapping[str, str],
        source: str,
        goal: str,
        options: Sequence[str],
    ) -> None:
        wanted = [name for name, oid in sorted(there.items()) if here.get(name) != oid]
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            # A timeline has its history in common with what it was, and with no other. To tell of all that is here is
            # worth nothing, and from some hundreds of timelines on git gives up before it comes to those that matter.
            tips = [f"--negotiation-tip={here[name]}" for name in some if name in here]
            refspecs = [f"+{source}{name}:{goal}{name}" for name in some]
            done = self._transport.fetch(refspecs, *options, *tips, before=() if tips else TELL_NOTHING)
            if done.status != 0:
                raise why_nothing_came(self._remote, done)

    def _forget(self, there: There, heads: Mapping[str, str], notes: Mapping[str, str]) -> None:
        gone = [self._heads + name for name in heads if name not in there.heads]
        gone += [self._notes + name for name in notes if name not in there.notes]
        if gone:
            text = "".join(f"delete {ref}\n" for ref in gone)
            self._fetched.git.run("update-ref", "--no-deref", "--stdin", stdin=text.encode("ascii"))

    def _contents(self, fresh: Sequence[str], known: Sequence[str], after: Mapping[str, str]) -> bool:
        """Fetch the lists of what is new, or with `--full` all there is; whether nothing is missing then."""
        try:
            ask_for(self._transport, self._wanted(fresh, known, after))
        except RemoteFailed:
            # It leaves contents out, and does not give them on demand either (an old protocol, another setting).
            self._take(dict.fromkeys(after, ""), {}, HEADS, self._heads, ("--refetch", *WHOLE))
        return self._full or not self._fetched.missing(fresh[:1])

    def _wanted(self, fresh: Sequence[str], known: Sequence[str], after: Mapping[str, str]) -> list[str]:
        if self._full:
            return self._fetched.missing(list(after.values()))
        lists = list(lists_of(self._fetched, self._trees(fresh, known), manifest=False))
        trees, blobs = {t for one in lists for t in one.trees}, {b for one in lists for b in one.blobs}
        return self._fetched.missing(trees, blobs)

    def _trees(self, fresh: Sequence[str], known: Sequence[str]) -> list[str]:
        if not fresh:
            return []
        asked = "".join([*(f"{oid}\n" for oid in fresh), *(f"^{oid}\n" for oid in known)])
        told = self._fetched.git.try_run(
            "log", "--format=%T", "--no-notes", "--stdin", stdin=asked.encode("ascii")
        )
        if told.status != 0:
            raise GitFailed(told.complaint)
        return list(dict.fromkeys(told.out.decode("ascii").split()))

    def _arrival(self, before: str | None, after: str | None) -> Arrival:
        if before is None or after is None:
            return Arrival.GONE if after is None else Arrival.NEW
        if before == after:
            return Arrival.SAME
        grown = self._fetched.git.ask("merge-base", "--is-ancestor", before, after).status == 0
        return Arrival.UPDATED if grown else Arrival.REWRITTEN
