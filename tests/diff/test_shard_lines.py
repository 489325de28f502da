"""A skipped shard has no differences, judged by reading it, and on whole snapshots by the full comparison."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.manifest_diff import (
    ShardDiff,
    _compare_shards,
    differing_lines,
    shards_without_other_changes,
)
from git_envhist.snapshots.manifest import OWN_NAME, format_line, join_shard
from tests.support.repository import Repo

NAMES = [b"a", b"aa", b"b c", b"--", b"+++", b"@@", b"z" * 40, b"%41"]
STORED = {name: name.replace(b"%41", b"%2541") for name in NAMES}
LINE = st.tuples(st.sampled_from([0o644, 0o755]), st.sampled_from([1, 2]), st.sampled_from([b"", b" u=7"]))
SHARD = st.tuples(LINE, st.dictionaries(st.sampled_from(NAMES), LINE))


def text(own: tuple[int, int, bytes], lines: dict[bytes, tuple[int, int, bytes]]) -> bytes:
    entries = [(name, format_line(name, b"f", *line)) for name, line in lines.items()]
    return join_shard(b"src", format_line(OWN_NAME, b"d", *own), [line for _, line in sorted(entries)])


def settled(old: bytes, new: bytes, certain: list[bytes], others: list[bytes]) -> bool:
    lines = differing_lines(old, new)
    return lines is not None and bool(
        shards_without_other_changes([ShardDiff((b"1", b"2"), *lines)], certain, others)
    )


@settings(max_examples=60)
@given(SHARD, SHARD, st.sets(st.sampled_from(NAMES)))
def test_skipped_shard_has_no_differences(
    before: tuple[tuple[int, int, bytes], dict[bytes, tuple[int, int, bytes]]],
    after: tuple[tuple[int, int, bytes], dict[bytes, tuple[int, int, bytes]]],
    modified: set[bytes],
) -> None:
    old, new = text(*before), text(*after)
    certain = {STORED[name] for name in modified & before[1].keys() & after[1].keys()}
    if settled(old, new, [b"src/" + name for name in certain], []):
        told = _compare_shards(b"src", old, new, (), certain)
        assert [path for path, both in told if both.before != both.after] == []


def test_shards_of_modified_files_are_not_read() -> None:
    times = (0o755, 1, b""), (0o755, 2, b"")
    old = text(times[0], dict.fromkeys(NAMES, (420, 1, b"")))
    new = text(times[1], {name: (0o644, 2 if name in NAMES[:3] else 1, b"") for name in NAMES})
    assert settled(old, new, [b"src/a", b"src/aa"], [])
    # Another path was added or removed there, so the shard may have other differences.
    assert not settled(old, new, [b"src/a"], [b"src/new"])
    # A long shard is cut to its first differences.
    rest = [b"n%05d" % number for number in range(2000)]
    long = [text(own, {**dict.fromkeys(rest, (420, 1, b"")), b"n01000": (mode, own[1], b"")})
            for own, mode in ((times[0], 420), (times[1], 420), (times[1], 384))]  # fmt: skip
    assert settled(long[0], long[1], [b"src/n01000"], [])
    assert settled(long[0], long[2], [b"src/n01000"], [])
    assert not settled(long[0], long[2], [b"src/n01001"], [])


EDITS = {
    "replaced": "printf 2 > d/x && mv d/x d/a",
    "in place": "printf 2 > d/a",
    "touched": "touch -d 2001-01-01 d/a && printf 2 > d/x && mv d/x d/b",
    "another's mode": "printf 2 > d/x && mv d/x d/a && chmod 600 d/b",
    "its own mode": "printf 2 > d/x && mv d/x d/a && chmod 600 d/a",
    "the directory's mode": "printf 2 > d/x && mv d/x d/a && chmod 700 d",
    "added": "printf 2 > d/x && mv d/x d/a && printf 3 > d/new",
    "removed": "printf 2 > d/x && mv d/x d/a && rm d/b",
    "a link instead": "rm d/a && ln -s b d/a",
    "a directory instead": "rm d/a && mkdir d/a && printf 2 > d/a/deep",
    "an empty directory": "printf 2 > d/x && mv d/x d/a && mkdir d/empty",
    "odd names": "printf 2 > d/x && mv d/x 'd/-- c' && chmod 600 'd/+ c'",
    "below the top": "printf 2 > x && mv x top && chmod 600 other",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_list_of_paths_agrees_with_full_comparison(repo: Repo, edit: str) -> None:
    for name in ("d/a", "d/b", "d/-- c", "d/+ c", "top", "other"):
        repo.write(name, "1")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    before = history.capture("before").snapshot
    subprocess.run(edit, shell=True, cwd=repo.path, check=True, env={**os.environ, "LC_ALL": "C"})
    after = history.capture("after").snapshot
    assert before is not None
    assert after is not None

    git = history.repository.git
    brief = compare(git, before.commit, after.commit, brief=True)
    whole = compare(git, before.commit, after.commit)

    assert [(change.path, change.kind) for change in brief] == [(one.path, one.kind) for one in whole]
    assert whole
    # Without packs of git-envhist, git reads all objects, with the same result.
    for kept in (repo.path / ".git/objects/pack").glob("*.keep"):
        kept.unlink()
    assert compare(git, before.commit, after.commit, brief=True) == brief
    assert compare(git, before.commit, after.commit) == whole
    subprocess.run(["git", "repack", "-adfq"], cwd=repo.path, check=True, env=repo.env)
    assert compare(git, before.tree, after.tree) == whole


def test_patches_ignore_the_users_attributes_even_if_they_are_a_pipe(repo: Repo) -> None:
    repo.write("src/a", "one")
    (repo.path / "src/b").write_text("two")
    first = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("one").snapshot
    (repo.path / "src/b").chmod(0o640)
    repo.write("src/a", "other")
    second = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("two").snapshot
    assert first is not None
    assert second is not None
    words = ("envdiff", "--name-status", first.id, second.id)
    wanted = repo.run(*words, check=True).out
    assert wanted.count("\n") == 2

    repo.write(".gitattributes", "* -diff merge=binary eol=crlf\n")
    assert repo.run(*words, check=True).out == wanted
    (repo.path / ".gitattributes").unlink()
    os.mkfifo(repo.path / ".gitattributes")
    assert repo.run(*words, check=True).out == wanted
