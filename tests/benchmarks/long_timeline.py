"""A timeline of thousands of snapshots, written with the store's own functions: `python -m … DIRECTORY NUMBER`.

Two real captures give the trees; the snapshots between them are commits with the messages, signatures and notes that
captures write, in one pack.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.git.cat_file import CatFile
from git_envhist.git.current_actor import identity_line
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, RefUpdate
from git_envhist.model import ChangeCount, NoteRecord
from git_envhist.objects.commits import encode_commit
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.snapshots.message import mac_input, read_message, with_mac, write_message
from git_envhist.snapshots.notes import add_records
from git_envhist.snapshots.staging import Staging

INTENTS = (
    "after package install",
    "before auth refactor",
    "cart test passes",
    "settings for the payment service",
)


def build(top: Path, number: int) -> None:
    """Capture twice, then append snapshots until the timeline has this many."""
    history = EnvHistory.open(str(top), workers="here", one_command=True)
    trees = [_captured_tree(history, top, value) for value in ("3000", "3001")]
    repository = history.repository
    with Staging.create(repository.common_state, repository.pack_dir) as staging:
        writer = PackWriter(staging.pack_dir, repository.object_format)
        tip, notes = _append(history, writer, trees, number - 2)
        staging.journal_commit(tip)
        pack = writer.finish()
        staging.publish([pack] if pack else [])
        _move(history, tip, notes)


def _captured_tree(history: EnvHistory, top: Path, value: str) -> str:
    (top / ".env.local").write_text(f"API_URL=http://localhost:{value}\n")
    captured = history.capture(f"port {value}")
    if captured.snapshot is None:
        raise SystemExit("the capture made no snapshot")
    return history.repository.git.run("rev-parse", f"{captured.snapshot.id}^{{tree}}").decode().strip()


def _append(history: EnvHistory, writer: PackWriter, trees: list[str], number: int) -> tuple[str, str]:
    repository, key = history.repository, history.keys.current()
    newest = history.resolve("@")
    tip, at = str(newest.id), newest.at
    raw = repository.git.run("cat-file", "commit", tip).partition(b"\n\n")[2]
    first = replace(read_message(raw).draft, changed=ChangeCount(0, 1, 0))
    additions: dict[str, list[NoteRecord]] = {}
    for count in range(number):
        at += timedelta(minutes=3)
        author = identity_line("A Developer", "dev@example.com", at)
        intent = f"{INTENTS[count % len(INTENTS)]} ({count})"
        message = write_message(replace(first, intent=intent.encode()))
        tree = trees[count % 2]
        message = with_mac(message, key.mac(mac_input(tree, author, message)))
        tip = writer.add(b"commit", encode_commit(tree, tip, author, author, message)).hex()
        additions[tip] = [NoteRecord("intent", at, {"text": intent, "source": "given"})]
    with CatFile(repository.git) as reader:
        old = repository.resolve_ref(NOTES_REFS + str(history.timeline))
        notes = add_records(
            reader, writer, old, additions, identity=author, object_format=repository.object_format
        )
    return tip, notes


def _move(history: EnvHistory, tip: str, notes: str) -> None:
    repository = history.repository
    moves = [(TIMELINE_REFS + str(history.timeline), tip), (NOTES_REFS + str(history.timeline), notes)]
    repository.move_refs([RefUpdate(ref, new, repository.resolve_ref(ref)) for ref, new in moves])


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(sys.argv[2]))
