"""Of two shards only the differing lines are read, at any position."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.manifest_diff import MetadataPair, _compare_shards, _read, _without_equal_lines
from git_envhist.snapshots.manifest import OWN_NAME, format_line, join_shard, read_shard

NAMES = [b"a", b"aa", b"ab", b"b", b"b c", b"ba", b"c", b"%41", b"z" * 40]
LINES = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.sampled_from([0o644, 0o755]), st.sampled_from([1, 10, 11, 111]))
)


def shard(lines: dict[bytes, tuple[int, int]], owner: bytes = b" u=0 g=0") -> bytes:
    own = format_line(OWN_NAME, b"d", 0o755, 1, owner)
    return join_shard(b"src", own, [format_line(name, b"f", *lines[name], b"") for name in sorted(lines)])


def entries(text: bytes) -> dict[bytes, object]:
    return {entry.path: entry for entry in read_shard(text).entries}


@given(LINES, LINES, st.sets(st.sampled_from(NAMES)))
def test_trimmed_shards_contain_differing_and_requested_lines(
    old: dict[bytes, tuple[int, int]], new: dict[bytes, tuple[int, int]], names: set[bytes]
) -> None:
    asked = {name.replace(b"%41", b"%2541") for name in names}
    before, after = map(entries, _without_equal_lines(shard(old), shard(new), asked))
    for name in NAMES:
        path = b"src/" + name
        wanted = old.get(name) != new.get(name) or name in names
        assert (before.get(path) is not None) == (wanted and name in old)
        assert (after.get(path) is not None) == (wanted and name in new)


@given(LINES, LINES)
def test_trimmed_shards_give_the_same_differences_as_whole_ones(
    old: dict[bytes, tuple[int, int]], new: dict[bytes, tuple[int, int]]
) -> None:
    for owner in (b" u=0 g=0", b" u=1 g=0"):
        whole_before, whole_after = _read(shard(old)), _read(shard(new, owner))
        told = dict(_compare_shards(b"src", shard(old), shard(new, owner), ()))
        for path in {**whole_before, **whole_after}:
            both = MetadataPair(whole_before.get(path), whole_after.get(path))
            assert told.get(path, both) == both
            assert path in told or both.before == both.after
