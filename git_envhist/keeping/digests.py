"""What verdicts say they were reached on, where that was erased since: a digest is a guess's confirmation.

Whoever has all of a tree but a short secret can try what its `Env-Content` would be. After an erasure the snapshots
say a keyed digest of theirs; here the notes of all timelines and the private list of checks follow. What is the content
of a snapshot as it stands now is left as it is; everything else becomes its keyed digest, the same everywhere, so that
what was equal stays equal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from git_envhist.capturing.identity import current_actor, signature
from git_envhist.capturing.publish import is_published
from git_envhist.keeping.means import HistoryContext
from git_envhist.model import NoteRecord, SnapshotId
from git_envhist.store.locks import COMMON_LOCK, locked, state_directory
from git_envhist.store.notes import move_notes
from git_envhist.store.objects import CatFile
from git_envhist.store.oldnotes import every_note
from git_envhist.store.packs import PackWriter
from git_envhist.store.records import VERDICT, format_record, read_record
from git_envhist.store.repository import NOTES, RefUpdate, Repository
from git_envhist.store.retelling import ChainCommit
from git_envhist.store.signatures import FindKey, SigningKey, signed_again
from git_envhist.store.staging import Staging, sweep
from git_envhist.verifying.ledger import VerdictLog

TREES = ("tree_before", "tree_after")

Digest = Callable[[str], str]
"""What is said in the place of a digest."""


def keyed_digest(key: SigningKey, content: str) -> str:
    """What takes the place of the digest of something that was erased."""
    return key.mac(b"purged\0" + content.encode("utf-8", "replace"))


class DigestEraser:
    """Has verdicts say nothing of what was erased."""

    def __init__(self, history: HistoryContext, repository: Repository, links: Iterable[ChainCommit]) -> None:
        """`links`: every snapshot there is now, on a chain or in the trash."""
        self._history = history
        self._repository = repository
        self._ids: dict[str, SnapshotId] = {}
        self._contents: set[str] = set()
        for link in links:
            self._ids[link.commit] = link.id
            self._contents.add(link.content)
        self._key = history.keys.current()

    def forget(self) -> None:
        """Have none of them stand in the notes, or in the list of checks."""
        for ref in self._repository.list_refs(NOTES):
            self._renew(ref)
        VerdictLog(self._repository.common_state).rewrite(self._digest)

    def _digest(self, content: str) -> str:
        return content if content in self._contents or not content else keyed_digest(self._key, content)

    def _renew(self, ref: str) -> None:
        repository = self._repository
        line = signature(current_actor(self._history.settings, self._history.environ), self._history.now)
        common = os.path.join(state_directory(repository.common_state), COMMON_LOCK)
        with locked(common, limited=True):
            tip = repository.resolve_ref(ref)
            texts = self._texts(ref) if tip is not None else {}
            if not texts:
                return
            with (
                Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
                CatFile(repository.git) as reader,
                PackWriter(staging.pack_dir, repository.object_format) as writer,
            ):
                new = move_notes(
                    reader,
                    writer,
                    tip,
                    {commit: [] for commit in texts},
                    more=texts,
                    identity=line,
                    object_format=repository.object_format,
                )
                pack = writer.finish()
                assert new is not None
                assert pack is not None
                git = repository.git
                sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
                staging.journal_commit(new)
                staging.publish([pack])
                repository.move_refs([RefUpdate(ref, new, tip)])
                repository.sync_refs([ref])

    def _texts(self, ref: str) -> dict[str, bytes]:
        """By commit, the notes that are to be other ones."""
        found = {}
        for commit, text in every_note(self._repository.git, ref).items():
            told = b"".join(
                rekeyed_record(
                    line, self._ids.get(commit, SnapshotId(commit)), self._digest, self._history.keys.get
                )
                for line in text.splitlines(keepends=True)
            )
            if told != text:
                found[commit] = told
        return found


def rekeyed_record(line: bytes, snapshot: SnapshotId, digest: Digest, find_key: FindKey) -> bytes:
    """A line of a note, with other digests; signed again by the key that had signed it, where that is here."""
    record = read_record(line) if b"tree_" in line else None
    if record is None or record.kind != VERDICT:
        return line
    changed = _changed(record, digest)
    if not changed:
        return line
    try:
        return format_record(signed_again(record, changed, snapshot, find_key))
    except ValueError:  # written by hand, with what none of ours holds
        return line


def _changed(record: NoteRecord, digest: Digest) -> Mapping[str, str]:
    told = {name: value for name in TREES if isinstance(value := record.fields.get(name), str)}
    return {name: new for name, value in told.items() if (new := digest(value)) != value}
