from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile
from git_envhist.model import NoteRecord, Verdict, VerdictStatus
from git_envhist.snapshots.note_records import (
    format_record,
    name_record,
    names_of,
    parse_records,
    read_note,
    remark_record,
    remarks_of,
    verdict_record,
    verdicts_of,
)
from git_envhist.snapshots.notes import add_records
from tests.git.loose import AT, IDENTITY, NOTES, LooseWriter, git_of
from tests.support.repository import Repo, make_repo

LATER = AT + timedelta(minutes=5)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.text().filter(lambda key: key not in ("at", "kind")), JSON, max_size=4)
MOMENTS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))
RECORDS = st.builds(NoteRecord, st.text(), MOMENTS, FIELDS)


def add(repo: Repo, additions: dict[str, list[NoteRecord]], writer: LooseWriter | None = None) -> LooseWriter:
    """Add records and move the notes ref, as a capture does."""
    object_format = repo.git("rev-parse", "--show-object-format")
    writer = writer or LooseWriter(repo, object_format)
    tip = repo.git("rev-parse", "-q", "--verify", NOTES, check=False) or None
    with CatFile(git_of(repo)) as reader:
        new = add_records(reader, writer, tip, additions, identity=IDENTITY, object_format=object_format)
    repo.git("update-ref", NOTES, new, tip or "")
    return writer


def shown(repo: Repo, commit: str) -> list[str]:
    return [line for line in repo.git("notes", f"--ref={NOTES}", "show", commit).split("\n") if line]


def line(record: NoteRecord) -> str:
    return format_record(record).decode().removesuffix("\n")


def listed(repo: Repo) -> set[str]:
    return {row.split(" ")[1] for row in repo.git("notes", f"--ref={NOTES}", "list").splitlines()}


@pytest.fixture(params=["sha1", "sha256"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo", object_format=request.param)


@given(RECORDS)
def test_record_is_one_printable_line_and_survives_a_round_trip(record: NoteRecord) -> None:
    text = format_record(record)
    assert text.count(b"\n") == 1
    assert text.decode().removesuffix("\n").isprintable()
    assert parse_records(text) == (record,)


def test_record_is_readable_sorted_json() -> None:
    assert format_record(NoteRecord("note", AT, {"text": "grün\x1b[2J"[:4]})) == (
        '{"at":"2026-11-18T10:27:03+00:00","kind":"note","text":"grün"}\n'.encode()
    )


@given(st.binary())
def test_any_bytes_are_read_as_a_note(text: bytes) -> None:
    good = format_record(remark_record("kept", AT))
    assert remark_record("kept", AT) in parse_records(text + b"\n" + good)


@given(st.text() | st.text('"\\{}:,\x7f\x00\n\u2028ab'), st.text(max_size=9), MOMENTS)
def test_intent_record_is_read_like_json(text: str, source: str, at: datetime) -> None:
    record = NoteRecord("intent", at, {"text": text, "source": source})
    for line in (
        format_record(record),
        json.dumps({"at": at.isoformat(), "kind": "intent", **record.fields}),
    ):
        said = line if isinstance(line, bytes) else line.encode()
        fields = json.loads(said.decode("utf-8", "replace"))
        (read,) = parse_records(said)
        assert {**read.fields, "kind": read.kind, "at": read.at.isoformat()} == fields


@pytest.mark.parametrize("at", ["", "2026", "T", "2026-13-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00+"])
def test_intent_record_without_time_is_skipped(at: str) -> None:
    note = read_note(b'{"at":"%b","kind":"intent","source":"given","text":"x"}\n' % at.encode())
    assert (note.records, note.flaw) == ((), "1 lines of a note are not records")


@pytest.mark.parametrize(
    "garbage",
    [
        b"looked fine to me",
        b"\x1b[2J\x9b\xff\xfe",
        b"[1, 2, 3]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"at":"2026-11-18T10:27:03+00:00","kind":"note","text":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"at":"2026-11-18T10:27:03+00:00","kind":"note","text":' + b"9" * 10_000 + b"}",
        b'{"at":1,"kind":"note"}',
        b'{"at":"soon","kind":"note"}',
        b'{"at":"2026-11-18T10:27:03+00:00","kind":["note"]}',
        b'{"kind":"note"}',
        b"null",
        b'{"at":"2026-11-18T10:27:03+00:00","kind":"note","text":"' + b"x" * (2 << 20) + b'"}',
    ],
)
def test_malformed_lines_are_skipped_and_reported(garbage: bytes) -> None:
    note = read_note(garbage + b"\n" + format_record(remark_record("kept", AT)))
    assert note.records == (remark_record("kept", AT),)
    assert note.flaw == "1 lines of a note are not records"


def test_oversized_note_is_not_read() -> None:
    note = read_note(format_record(remark_record("x", AT)) * 150_000)
    assert note.records == ()
    assert note.flaw is not None
    assert len(read_note(b"{}\n" * 1_000_000).records) == 0


def test_values_of_the_wrong_type_are_ignored() -> None:
    records = (
        NoteRecord("name", AT, {"name": 7}),
        NoteRecord("name", AT, {"name": ["a"]}),
        NoteRecord("note", AT, {"text": None}),
        NoteRecord("verdict", AT, {"status": "splendid"}),
        NoteRecord("verdict", AT, {"status": ["pass"]}),
        NoteRecord(
            "verdict",
            AT,
            {"status": "fail", "exit_code": True, "signal": 1 << 70, "command": 1, "duration_ms": 1.5},
        ),
    )
    assert (names_of(records), remarks_of(records)) == ((), ())
    assert verdicts_of(records) == (Verdict(VerdictStatus.FAIL, "", AT),)


def test_names_are_given_and_removed_in_order_of_time() -> None:
    records = (
        name_record("b", LATER, removed=True),
        name_record("a", AT),
        name_record("b", AT),
        name_record("c", LATER),
        name_record("c", AT, removed=True),
    )
    assert names_of(records) == ("a", "c")


def test_verdicts_and_remarks_are_complete_and_oldest_first() -> None:
    first = Verdict(
        VerdictStatus.FAIL, "npm test", AT, 1, None, 812, tree_before="1" * 40, tree_after="2" * 40
    )
    second = Verdict(VerdictStatus.PASS, "npm test", LATER, 0, carried_from="3" * 40)
    records = parse_records(format_record(verdict_record(second)) + format_record(verdict_record(first)))
    assert verdicts_of(records) == (first, second)
    said = (remark_record("later", LATER), remark_record("first", AT))
    assert [remark.text for remark in remarks_of(said)] == ["first", "later"]
    claimed = NoteRecord("verdict", AT, {"status": "pass", "claimed_by": None})
    assert (
        verdicts_of([replace(claimed, fields={"status": "pass", "claimed_by": "me"})])[0].claimed_by is None
    )


def test_appended_records_are_shown_by_git(either: Repo) -> None:
    head = either.git("rev-parse", "HEAD")
    first, second = remark_record("first", AT), name_record("good-one", LATER)
    add(either, {head: [first]})
    add(either, {head: [second]})
    assert shown(either, head) == [line(first), line(second)]
    assert json.loads(shown(either, head)[1])["name"] == "good-one"
    assert either.git("rev-list", "--count", NOTES) == "2"
    assert either.git("fsck", "--strict") == ""


def test_notes_written_by_git_and_by_git_envhist_are_merged(either: Repo) -> None:
    commits = [either.commit(f"change {number}") for number in range(4)]
    for number, commit in enumerate(commits):
        either.git("notes", f"--ref={NOTES}", "add", "-m", f"by hand {number}", commit)
        add(either, {commit: [remark_record(f"ours {number}", AT)]})
        either.git("notes", f"--ref={NOTES}", "append", "-m", "again by hand", commits[0])
    for number, commit in enumerate(commits):
        mine = line(remark_record(f"ours {number}", AT))
        assert shown(either, commit)[:2] == [f"by hand {number}", mine]
    assert len(shown(either, commits[0])) == 2 + 4
    assert listed(either) == set(commits)
    assert either.git("fsck", "--strict") == ""


@pytest.mark.parametrize("layout", [(), (2,), (2, 4), (2, 4, 6)])
def test_note_is_found_at_every_depth_and_others_stay_unchanged(repo: Repo, layout: tuple[int, ...]) -> None:
    head = repo.git("rev-parse", "HEAD")
    other = head[:2] + "f" * 38
    edges = [0, *layout, 40]
    blob = repo.git("hash-object", "-w", "--stdin", input="old line")
    rows = [
        f"100644 {blob}\tREADME",
        f"100755 {blob}\tsome/where/else",
        f"100644 {blob}\t{head[:2]}/not a note",
    ]
    for commit in (head, other):
        path = "/".join(commit[start:end] for start, end in itertools.pairwise(edges))
        rows.append(f"100644 {blob}\t{path}")
    index = {"GIT_INDEX_FILE": str(repo.path / "other-index")}
    repo.execute("git", "update-index", "--index-info", input="\n".join(rows) + "\n", env=index)
    tree = repo.execute("git", "write-tree", env=index).out.strip()
    repo.git("update-ref", NOTES, repo.git("commit-tree", "-m", "x", tree))
    before = set(repo.git("ls-tree", "-r", tree).splitlines())

    add(repo, {head: [remark_record("new", AT)]})

    assert shown(repo, head) == ["old line", line(remark_record("new", AT))]
    after = set(repo.git("ls-tree", "-r", NOTES).splitlines())
    assert {row for row in before if head[6:] not in row} <= after
    assert [row.split("\t")[1] for row in after - before] == [f"{head[:2]}/{head[2:]}"]
    assert len(after) == len(before)
    assert repo.git("fsck", "--strict") == ""


def test_parts_of_a_note_on_several_levels_are_joined(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    blobs = [repo.git("hash-object", "-w", "--stdin", input=text) for text in ("flat", "below", "deep")]
    deep = repo.git("mktree", input=f"100644 blob {blobs[2]}\t{head[4:]}\n")
    below = repo.git("mktree", input=f"100644 blob {blobs[1]}\t{head[2:]}\n040000 tree {deep}\t{head[2:4]}\n")
    top = repo.git("mktree", input=f"100644 blob {blobs[0]}\t{head}\n040000 tree {below}\t{head[:2]}\n")
    repo.git("update-ref", NOTES, repo.git("commit-tree", "-m", "x", top))
    add(repo, {head: [remark_record("new", AT)]})
    assert shown(repo, head) == ["flat", "below", "deep", line(remark_record("new", AT))]
    assert repo.git("ls-tree", "-r", "--name-only", NOTES) == f"{head[:2]}/{head[2:]}"


def test_note_is_refused_when_its_path_is_taken(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    blob = repo.git("hash-object", "-w", "--stdin", input="a file")
    top = repo.git("mktree", input=f"100644 blob {blob}\t{head[:2]}\n")
    repo.git("update-ref", NOTES, repo.git("commit-tree", "-m", "x", top))
    add(repo, {head: [remark_record("new", AT)]})
    assert shown(repo, head) == [line(remark_record("new", AT))]
    assert repo.git("cat-file", "-p", f"{NOTES}:{head[:2]}") == "a file"


def test_adding_a_note_to_thousands_writes_four_objects(either: Repo) -> None:
    length = len(either.git("rev-parse", "HEAD"))
    commits = [f"{number * 2654435761 % 2**32:08x}".ljust(length, "7") for number in range(2000)]
    add(either, {commit: [remark_record(commit, AT)] for commit in commits})
    assert listed(either) == set(commits)
    # git now spreads the tree over several levels.
    head = either.git("rev-parse", "HEAD")
    either.git("notes", f"--ref={NOTES}", "add", "-m", "by hand", head)
    writer = add(either, {head: [remark_record("ours", LATER)]})
    assert sorted(writer.added) == [b"blob", b"commit", b"tree", b"tree"]
    assert shown(either, head)[0] == "by hand"
    assert listed(either) == {*commits, head}
    assert all(
        either.git("cat-file", "-p", f"{NOTES}:{c[:2]}/{c[2:]}") == line(remark_record(c, AT))
        for c in commits[:5]
    )
    assert either.git("fsck", "--strict") == ""


def test_unreadable_notes_are_damage(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    missing = f"{head[:2]}{'0' * 38}"
    commit = f"tree {missing}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx"
    of_missing_tree = repo.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", input=commit)
    garbage_tree = repo.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", input=b"garbage")
    of_garbage = repo.git(
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--stdin",
        "--literally",
        input=commit.replace(missing, garbage_tree),
    )
    writer = LooseWriter(repo)
    for tip in ("0" * 40, repo.git("rev-parse", "HEAD:app.py"), of_missing_tree, of_garbage):
        with CatFile(git_of(repo)) as reader, pytest.raises(Damaged):
            add_records(
                reader, writer, tip, {head: [remark_record("x", AT)]}, identity=IDENTITY, object_format="sha1"
            )


def test_note_is_not_extended_beyond_the_size_limit(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    repo.write("huge", b"x" * (5 << 20))
    repo.git("notes", f"--ref={NOTES}", "add", "-F", "huge", head)
    with pytest.raises(Damaged, match="too large"):
        add(repo, {head: [remark_record("x", AT)]})


def test_record_times_keep_their_offset() -> None:
    at = datetime(2026, 11, 18, 10, 27, tzinfo=timezone(timedelta(hours=-8)))
    (record,) = parse_records(format_record(remark_record("x", at)))
    assert record.at.utcoffset() == timedelta(hours=-8)
