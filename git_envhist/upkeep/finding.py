"""What our packs still hold of a timeline, or of its notes, where no ref leads there any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

from git_envhist.errors import Damaged, EnvhistError, GitFailed, GitKilled
from git_envhist.model import Snapshot
from git_envhist.store.chain import read_snapshot
from git_envhist.store.commits import moment_of, parse_commit
from git_envhist.store.leftbehind import read_left_behind
from git_envhist.store.objects import CatFile
from git_envhist.store.refhealth import set_aside_commits
from git_envhist.store.relinking import read_links
from git_envhist.store.repository import HEADS, NOTES, Repository
from git_envhist.store.retelling import ChainCommit, read_link
from git_envhist.store.rewritten import current_commit, read_rewritten
from git_envhist.store.staging import open_published
from git_envhist.store.trash import read_trash
from git_envhist.upkeep.gathering import gather


def newest_whole(repository: Repository, ref: str) -> str | None:
    """The newest commit that can be read of what a ref of ours stood for; None where the packs hold none."""
    if ref.startswith(HEADS):
        found = _without_older(repository, outside_trash(repository, ref.removeprefix(HEADS)))
        return _newest(found).commit if found else None
    if ref.startswith(NOTES):
        return gathered_notes(repository, ref)
    return None


def _without_older(repository: Repository, found: Sequence[Snapshot]) -> list[Snapshot]:
    """Without the commits that a rewrite has made others of: they lead to what was let go, or erased."""
    rewritten = read_rewritten(repository.common_state)
    present = {one.commit for one in found}
    return [
        one
        for one in found
        if (now := current_commit(rewritten, one.commit)) == one.commit or now not in present
    ]


def _newest(found: Sequence[Snapshot]) -> Snapshot:
    followed = {one.parent for one in found}
    return max((one for one in found if one.commit not in followed), key=lambda one: one.at)


def snapshots_of(repository: Repository, timeline: str, *, dropped: bool = True) -> list[Snapshot]:
    """Every snapshot of a timeline in our packs, also what nothing leads to; `dropped`: what lies in the trash, too."""
    found = []
    for oid, data in _commits(repository):
        with suppress(EnvhistError):
            snapshot = read_snapshot(oid, data)
            is_meant = snapshot.timeline == timeline and snapshot.format
            if is_meant and (dropped or not read_link(oid, data).in_trash):
                found.append(snapshot)
    return found


def outside_trash(repository: Repository, timeline: str) -> list[Snapshot]:
    """Those of them that were neither let go nor set aside as broken."""
    with CatFile(repository.git) as reader:
        let_go = {link.id for bundle in read_trash(repository, reader) for link in bundle.links}
    aside = frozenset(set_aside_commits(repository.common_state))
    found = snapshots_of(repository, timeline, dropped=False)
    broken = {one.id for one in found if one.commit in aside}
    return [one for one in found if one.id not in let_go | broken]


def lost_snapshots(repository: Repository) -> dict[str, tuple[ChainCommit, ...]]:
    """By timeline, what stood on it before it began anew, and nothing leads to; oldest first."""
    found = {name: _off_the_chain(repository, name) for name in read_left_behind(repository.common_state)}
    return {name: links for name, links in found.items() if links}


def _off_the_chain(repository: Repository, timeline: str) -> tuple[ChainCommit, ...]:
    with CatFile(repository.git) as reader:
        try:
            chain = read_links(reader, repository.resolve_ref(HEADS + timeline))
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return ()  # a repair has another one there first
        known = {link.id for link in chain}
        # A capture that was overtaken told the same moment twice.
        told = {(link.tree, link.data.committer) for link in chain}
        found = [
            one
            for one in _without_older(repository, outside_trash(repository, timeline))
            if one.id not in known
        ]
        answers = reader.read_many([one.commit for one in found])
        links = [
            read_link(one.commit, answer.data) for one, answer in zip(found, answers, strict=True) if answer
        ]
    return _in_order([link for link in links if (link.tree, link.data.committer) not in told])


def _in_order(links: Sequence[ChainCommit]) -> tuple[ChainCommit, ...]:
    """Oldest first; of those of one second, each behind the one that it follows."""
    known = {link.commit: link for link in links}

    def depth(link: ChainCommit) -> int:
        steps, following = 0, link.parent
        while following is not None and following in known:
            steps, following = steps + 1, known[following].parent
        return steps

    ordered = sorted(links, key=lambda link: (link.data.at, depth(link)))
    return tuple({link.id: link for link in ordered}.values())


def older_than(
    repository: Repository, timeline: str, links: Sequence[ChainCommit]
) -> tuple[ChainCommit, ...]:
    """What came before a chain whose oldest snapshot names one that cannot be read; oldest first."""
    known = {link.id for link in links}
    before = moment_of(links[0].data.committer)
    with CatFile(repository.git) as reader:
        known |= {link.id for bundle in read_trash(repository, reader) for link in bundle.links}
        older = [
            one for one in snapshots_of(repository, timeline) if one.id not in known and one.at <= before
        ]
        if not older:
            return ()
        newest = _newest(older)
        return tuple(link for link in read_links(reader, newest.commit) if link.id not in known)


def gathered_notes(repository: Repository, ref: str) -> str | None:
    """A new commit of notes with all that can be read of any version of them; None where nothing can."""
    timeline = ref.removeprefix(NOTES)
    snapshots = {one.commit for one in snapshots_of(repository, timeline)}
    commits = {oid: parse_commit(data) for oid, data in _commits(repository)}
    return gather(repository, timeline, repository.resolve_ref(ref), snapshots, commits)


def _commits(repository: Repository) -> Iterator[tuple[str, bytes]]:
    """(id, bytes) of every commit in our packs that can be read."""
    own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
    with closing(own):
        ids = {oid for pack in own.packs for oid in pack.index.names()}
        asked = b"".join(b"%b\n" % oid.hex().encode("ascii") for oid in ids)
        # All of it or none: of a git that is ended half way, a part of the commits would look like all there are.
        told = repository.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
        for line in told.splitlines():
            if line.startswith(b"commit "):
                name = line[7:].decode("ascii")
                with suppress(Damaged, KeyError):
                    yield name, own.read(bytes.fromhex(name))[1]
