"""Which files wake which probes: by their names, and where a line says so, by that of their directory."""

from __future__ import annotations

from git_envhist.capture.probe_worker import compile_file_triggers, files_triggering_probes
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


def test_a_name_wakes_wherever_it_stands() -> None:
    for path in (b"", b"sub", b"a/meta"):
        assert woken(path, b"a.json", b".env.x", b"x.zip", b"other")["anywhere"] == [
            b".env.x",
            b"a.json",
            b"x.zip",
        ]


def test_a_name_with_a_directory_wakes_in_directories_so_called_alone() -> None:
    for path in (b"meta", b"deep/down/meta"):
        assert woken(path, b"a.json", b"b.json", b"b.txt")["there"] == [b"a.json", b"b.json"]
    for path in (b"", b"metal", b"my-meta", b"meta/below", b"meta.d"):
        assert "there" not in woken(path, b"a.json", b"b.json", b"b.txt")


def test_all_of_a_directory_can_be_meant() -> None:
    assert woken(b"usr/bin", b"tool", b".hidden") == {"there": [b".hidden", b"tool"]}
    assert woken(b"usr/sbin", b"tool") == {}
