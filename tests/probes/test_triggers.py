"""File name patterns that trigger probes, with and without the name of a directory."""

from __future__ import annotations

from git_envhist.capture.file_triggers import compile_file_triggers, files_triggering_probes
from git_envhist.probes.base import FileProbe
from git_envhist.worktree.stat_cache import DirectoryRecord

PROBES = {
    "anywhere": FileProbe("x", "packages", 1, reads=(b"a.json", b".env*"), sees=(b"*.zip",)),
    "there": FileProbe("x", "packages", 1, reads=(b"meta/*.json",), sees=(b"meta/a.json", b"bin/*")),
}


def woken(path: bytes, *names: bytes) -> dict[str, list[bytes]]:
    record = DirectoryRecord(path, names=list(names), ids=b"x" * 20 * len(names))
    found = files_triggering_probes(record, compile_file_triggers(PROBES), 20)
    return {probe: sorted({file.name for file in files}) for probe, files in found.items()}


def test_plain_name_triggers_in_every_directory() -> None:
    for path in (b"", b"sub", b"a/meta"):
        assert woken(path, b"a.json", b".env.x", b"x.zip", b"other")["anywhere"] == [
            b".env.x",
            b"a.json",
            b"x.zip",
        ]


def test_name_with_directory_triggers_only_there() -> None:
    for path in (b"meta", b"deep/down/meta"):
        assert woken(path, b"a.json", b"b.json", b"b.txt")["there"] == [b"a.json", b"b.json"]
    for path in (b"", b"metal", b"my-meta", b"meta/below", b"meta.d"):
        assert "there" not in woken(path, b"a.json", b"b.json", b"b.txt")


def test_star_triggers_on_every_file_of_a_directory() -> None:
    assert woken(b"usr/bin", b"tool", b".hidden") == {"there": [b".hidden", b"tool"]}
    assert woken(b"usr/sbin", b"tool") == {}
