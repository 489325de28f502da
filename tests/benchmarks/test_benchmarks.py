from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.benchmarks import big_file
from tests.benchmarks.bench import Bench
from tests.benchmarks.contents import content
from tests.benchmarks.corpus import FULL, SMALL, SMALL_FILE, plan, write_database
from tests.benchmarks.peers import Setting
from tests.benchmarks.restores import careful_jobs, git_job
from tests.benchmarks.runs import Failed, Job, peak_memory, seconds, text
from tests.benchmarks.scenarios import PAGES, Editor
from tests.benchmarks.scratch import Scratch, du
from tests.benchmarks.table import Amount, Line, render


def test_full_environment_has_the_promised_size_and_shape() -> None:
    files = plan(FULL)
    flat = [file for file in files if file.path.startswith("node_modules/@icons/all/")]
    small = sum(file.size <= SMALL_FILE for file in files) / len(files)
    assert 95_000 < len(files) < 105_000
    assert 1.7e9 < sum(file.size for file in files) + FULL.database < 2.3e9
    assert len(flat) == 20_000
    assert 0.72 < small < 0.78


def test_the_same_seed_gives_the_same_files() -> None:
    assert plan(SMALL) == plan(SMALL)
    assert content("js", 5000, "one") == content("js", 5000, "one") != content("js", 5000, "two")


@pytest.mark.parametrize("kind", ["py", "pyc", "so", "js", "dts", "map", "json", "text", "image"])
def test_a_file_is_as_large_as_planned(kind: str) -> None:
    assert len(content(kind, 4000, "name")) == 4000


def test_database_edit_changes_about_as_many_pages_as_requested(tmp_path: Path) -> None:
    database = tmp_path / "app.sqlite3"
    write_database(database, 4_000_000)
    before = _pages(database)
    Editor(tmp_path, (1, 1)).change_pages()
    changed = sum(one != other for one, other in zip(before, _pages(database), strict=True))
    assert 0.7 * PAGES < changed <= PAGES + 1
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def _pages(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [data[at : at + 4096] for at in range(0, len(data), 4096)]


def test_scratch_leaves_no_files_behind() -> None:
    with Scratch() as scratch:
        place = scratch.fresh("store")
        (place / "file").write_bytes(b"x" * 100_000)
        assert du(place) >= 100_000
    assert not scratch.base.exists()
    assert not os.path.ismount(place)


def test_scratch_leaves_no_files_behind_after_an_interruption() -> None:
    scratch = Scratch()
    with pytest.raises(KeyboardInterrupt):
        _interrupted(scratch)
    assert not scratch.base.exists()
    assert str(scratch.base) not in Path("/proc/self/mounts").read_text()


def _interrupted(scratch: Scratch) -> None:
    with scratch:
        scratch.fresh("store")
        raise KeyboardInterrupt


def test_failed_program_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(Failed):
        seconds([Job(["sh", "-c", "exit 3"], tmp_path, dict(os.environ))])


def test_git_with_verification_fails_when_written_files_differ(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    with Scratch() as scratch:
        setting = Setting(tmp_path / "app", tmp_path, dict(os.environ))
        bench = Bench(scratch, setting, SMALL, 1, lambda _: None)
    bench.git.prepare(setting, tmp_path)
    bench.stores[bench.git.name] = tmp_path
    file, trees = tmp_path / "app/file", []
    for written in ("one", "two"):
        file.write_text(written)
        text(git_job(bench, "add", "-A", "-f", "."))
        trees.append(text(git_job(bench, "write-tree")))
    jobs = careful_jobs(bench, here=trees[1], there=trees[0])
    seconds(jobs)
    assert file.read_text() == "one"
    file.write_text("not")
    with pytest.raises(Failed):
        seconds(jobs[-1:])


def test_peak_memory_counts_all_processes(tmp_path: Path) -> None:
    hold = "held = bytearray(60_000_000); import time; time.sleep(0.5)"
    script = f"{sys.executable} -c '{hold}' & {sys.executable} -c '{hold}'; wait"
    peak = peak_memory(Job(["sh", "-c", script], tmp_path, dict(os.environ)))
    assert 120_000_000 < peak < 250_000_000


def test_big_file_is_restored_and_its_memory_is_measured(tmp_path: Path) -> None:
    captured, restored, same = big_file.measure(tmp_path, 24)
    assert same
    assert 0 < captured < big_file.LIMIT
    assert 0 < restored < big_file.LIMIT


def test_line_over_its_limit_is_marked() -> None:
    fast, slow = Amount(1.0, "s"), Amount(4.0, "s")
    assert "| ok " in render([Line("work", fast, "git", slow, 0.25)])
    assert "OVER" in render([Line("work", slow, "git", fast, 0.25)])
    assert "OVER" in render([Line("memory", Amount(500e6, "bytes"), limit=Amount(400e6, "bytes"))])
    assert "OVER" not in render([Line("work", slow, "git", fast, 0.25)], judged=False)


def test_missing_peer_is_named() -> None:
    assert "not installed" in render([Line("work", Amount(1.0, "s"), "restic", None, 0.08)])
