"""What was staged: the index where it differs from HEAD, and those contents that only git's index has.

A content as large as a big file goes through in pieces, as that would, and counts against the same budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from git_envhist.capture.content import MOST_SEALED
from git_envhist.capture.seal import keyed_hash, seal
from git_envhist.capturing.policy import secret_rules
from git_envhist.capturing.sources import remembered_twins
from git_envhist.settings import Settings
from git_envhist.store.git import Git
from git_envhist.store.gitview import StagedEntry
from git_envhist.store.keys import Key
from git_envhist.store.layout import STAGED
from git_envhist.store.objects import CatFile
from git_envhist.store.packs import PackWriter
from git_envhist.store.pieces import store_pieces
from git_envhist.store.quoting import quote_path, show
from git_envhist.store.snapshots import DIRECTORY, FILE, TreeEntry
from git_envhist.store.streams import blob_blocks, blob_sizes


class BudgetExceeded(Exception):
    """The budget is used up."""


class StagedIndexSaver:
    """Keeps what was staged, within what room there is."""

    def __init__(
        self,
        git: Git,
        sink: PackWriter,
        settings: Settings,
        key: Key | None,
        room: int,
        state: str,
        warnings: list[str],
    ) -> None:
        self._git = git
        self._sink = sink
        self._key = key
        self._big = settings.big_file
        self._rules = secret_rules(settings.secret)
        self._twins = remembered_twins(state, key)
        self._most = sink.stored_bytes + room
        self._warnings = warnings

    def keep(
        self, staged: tuple[StagedEntry, ...], left_out: Callable[[bytes], bool]
    ) -> dict[bytes, TreeEntry]:
        """The entries that say what was staged, by their place below the reserved name."""
        if not staged:
            return {}
        entries: dict[bytes, TreeEntry] = {}
        lines = []
        sizes = blob_sizes(self._git, [entry.oid for entry in staged if entry.mode])
        with CatFile(self._git) as reader:
            for entry in staged:
                size = sizes.get(entry.oid) if entry.mode else None
                held = self._held(reader, entry, size)
                secret = self._is_secret(entry, held)
                key = self._key if secret else None
                lines.append(_line(entry, key, secret))
                wanted = entry.needs_content and size is not None and not left_out(entry.path)
                if wanted and not (secret and key is None):
                    self._keep_content(entries, entry, key, held)
        entries[STAGED + b"/index"] = (b"", FILE, self._sink.add(b"blob", b"".join(sorted(lines))))
        return entries

    def _held(self, reader: CatFile, entry: StagedEntry, size: int | None) -> bytes | None:
        """The content, where it is there and may be held."""
        most = MOST_SEALED if self._rules.by_name(entry.path) else self._big
        found = reader.read(entry.oid) if size is not None and size < most else None
        return found.data if found is not None else None

    def _is_secret(self, entry: StagedEntry, held: bytes | None) -> bool:
        return self._rules.by_name(entry.path) or (
            held is not None and (self._rules.by_content(entry.path, held) or self._is_copy(entry, held))
        )

    def _is_copy(self, entry: StagedEntry, held: bytes) -> bool:
        return self._twins.has_content(held) and not self._rules.excludes(entry.path)

    def _keep_content(
        self, entries: dict[bytes, TreeEntry], entry: StagedEntry, key: Key | None, held: bytes | None
    ) -> None:
        mark = self._sink.mark()
        place = b"%b/content/%d-%b" % (STAGED, entry.stage, _shown_id(entry, key))
        try:
            entries[place] = self._put(entry, key, held)
        except BudgetExceeded:
            self._sink.rollback(mark)
            self._warnings.append(f"what was staged of '{show(entry.path)}' is left out: it is too large")

    def _put(self, entry: StagedEntry, key: Key | None, held: bytes | None) -> TreeEntry:
        if held is None:
            if key is not None:
                raise BudgetExceeded  # a seal is made in memory
            _, tree = store_pieces(self._sink, self._within_room(blob_blocks(self._git, entry.oid)))
            self._check_room()
            return (b"", DIRECTORY, tree)
        data = seal(key, entry.path, b"staged", held) if key else held
        oid = self._sink.add(b"blob", data)
        self._check_room()
        return (b"", FILE, oid)

    def _within_room(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block
            self._check_room()

    def _check_room(self) -> None:
        if self._sink.stored_bytes > self._most:
            raise BudgetExceeded


def _line(entry: StagedEntry, key: Key | None, secret: bool) -> bytes:
    oid = _shown_id(entry, key) if not secret or key is not None else b"sealed"
    return b"%b %06o %b %d\n" % (quote_path(entry.path), entry.mode, oid, entry.stage)


def _shown_id(entry: StagedEntry, key: Key | None) -> bytes:
    # The bare id of a secret file's blob is a hash of the secret.
    if key is None:
        return entry.oid.encode("ascii")
    # A seal is bound to its path: equal content of two paths has two ids, and two places.
    return keyed_hash(key, entry.oid.encode("ascii"), entry.path)[:20].hex().encode("ascii")
