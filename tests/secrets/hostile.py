"""A timeline in which every text tries to control the reader's terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.end_to_end.captures import capture
from tests.secrets.test_unsigned_snapshots import message_of, put_on_timeline, ref_of
from tests.support.repository import Repo

COMMANDS = {
    "clear": b"\x1b[2J\x1b[H",
    "title": b"\x1b]0;owned\x07",
    "link": b"\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
    "clipboard": b"\x1b]52;c;cm0gLXJmIH4=\x07",
    "bell": b"\x07",
    "c1": "\u009b2J\u009d0;owned\u009c".encode(),
    "c1 raw": b"\x9b2J",
    "return": b"verified: ok\rX",
    "backspace": b"fail\x08\x08\x08\x08pass",
    "bidi": "\u202eko :deifirev\u202c\u2066\u200f".encode(),
    "delete": b"\x7f",
    "lines": "a\u2028b\u2029c\u0085d\x0be\x0cf".encode(),
    "invalid": b"\xff\xfe\xc3\x28",
}
EVERYTHING = b" ".join(COMMANDS.values())
TEXT = EVERYTHING.decode("utf-8", "replace")
NOTE = 10 << 20


@dataclass(frozen=True)
class Hostile:
    repo: Repo
    own: tuple[str, ...]
    forged: str


def make_hostile(repo: Repo) -> Hostile:
    """Take two captures with hostile text and files, then add commits and notes with plain git."""
    first = capture(repo, "-m", EVERYTHING, "--meta", b"k=" + EVERYTHING, "--external-id", EVERYTHING)
    for number, command in enumerate(COMMANDS.values()):
        repo.write(b"d%d " % number + command.replace(b"/", b"_") + b"/f", command)
        repo.write(b"f%d " % number + command.replace(b"/", b"_"), command + b"\nline\n")
    repo.write(b".env.local" + b"\x1b[2J", b"A\x1b[2J=1\nB=\x1b]0;x\x07\n")
    repo.write(b"closed\x1b[2J", b"x", mode=0)
    attached = repo.write(b"../talk\x1b[2J\xff.txt", b"x")
    second = capture(
        repo, "-m", b"second\n\nEnv-Mac: 00\nverified: ok\n" + EVERYTHING, "--attach", str(attached)
    )
    return Hostile(repo, (first, second), forge(repo, second))


def forge(repo: Repo, second: str) -> str:
    """Write a commit with forged trailers, and notes with unsigned verdicts."""
    message = message_of(repo, second)
    quoted = b"".join(b"%%%02x" % byte for byte in EVERYTHING)
    trailers = message.rpartition(b"\n\n")[2].split(b"\n")
    changed = {b"Env-Actor": b"Mallory" + quoted + b" <m" + quoted + b"@x>; agent=" + quoted + b" version=1",
               b"Env-Branch": b"refs/heads/" + quoted, b"Env-Story": quoted, b"Env-Timeline": quoted,
               b"Env-Meta": b"k" + quoted + b"=" + quoted, b"Env-Attachment": quoted}  # fmt: skip
    kept = [line for line in trailers if line.partition(b": ")[0] not in changed and b"Env-Mac" not in line]
    extra = [key + b": " + value for key, value in changed.items()]
    text = (
        EVERYTHING + b"\n\nverified: ok\n" + EVERYTHING + b"\n\n" + b"\n".join([*kept[:-1], *extra]) + b"\n"
    )
    forged = put_on_timeline(repo, text, name="Mallory\x1b[2J")
    annotate(repo, forged)
    return forged


def annotate(repo: Repo, commit: str) -> None:
    notes = ref_of(repo).replace("refs/envhist/heads/", "refs/notes/envhist/")
    at = "2026-11-18T10:00:00+00:00"
    records = [
        {"at": at, "kind": "name", "name": f"n{TEXT}"},
        {"at": at, "kind": "note", "text": TEXT},
        {"at": at, "kind": "verdict", "status": "pass", "command": TEXT, "output_tail": TEXT, "exit_code": 0,
         "tree_before": TEXT, "carried_from": TEXT, "claimed_by": TEXT, "by": TEXT},
        {"at": at, "kind": "verdict", "status": "fail", "command": TEXT, "output_tail": TEXT, "exit_code": 9,
         "by": TEXT},
        {"at": at, "kind": "verdict", "status": "error", "command": TEXT, "output_tail": TEXT, "by": TEXT},
        {"at": at, "kind": "effect", "text": TEXT, "command": TEXT, "irreversible": True, "exit_code": 1},
        {"at": at, "kind": "task", "id": TEXT, "text": TEXT, "status": "pending", "agent": TEXT,
         "agent_version": TEXT, "definition": TEXT},
        {"at": at, "kind": "observed", "external_id": TEXT, "text": TEXT, "label": TEXT},
        {"at": at, "kind": "service", "name": TEXT, "service": TEXT, "words": TEXT},
        {"at": at, "kind": TEXT, TEXT: TEXT},
    ]  # fmt: skip
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    repo.run_git(
        "notes",
        f"--ref={notes}",
        "add",
        "-f",
        "-F",
        "-",
        commit,
        input=lines + b"verified: ok\n" + EVERYTHING,
    )
    large = repo.git("hash-object", "-w", "--stdin", input=b"\x1b[2J" * (NOTE // 4))
    repo.git("notes", "--ref=refs/notes/envhist/other/large", "add", "-C", large, commit + "~1")
