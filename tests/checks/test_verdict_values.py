"""The verdict of a snapshot with several results: an error replaces no earlier verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from git_envhist.capture.verdict_log import LoggedVerdict, VerdictLog
from git_envhist.checks.sandbox import live_paths_in, rewrite_live_paths
from git_envhist.history.timeline import own_verdict
from git_envhist.lazy import replace
from git_envhist.model import Snapshot, SnapshotId, Verdict, VerdictStatus
from git_envhist.model.snapshots import latest_judged
from git_envhist.restore.relocate import Relocation
from tests.history.snapshots import snapshot as made

PASS, FAIL, ERROR = (
    Verdict(status, "npm test", datetime(2026, 11, 18, tzinfo=UTC)) for status in VerdictStatus
)


def snapshot(*verdicts: Verdict) -> Snapshot:
    return replace(made("10:02"), verdicts=verdicts)


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        ((PASS, ERROR), PASS),
        ((FAIL, ERROR, ERROR), FAIL),
        ((PASS, FAIL), FAIL),
        ((ERROR,), ERROR),
        ((), None),
    ],
)
def test_error_does_not_replace_an_earlier_verdict(
    verdicts: tuple[Verdict, ...], wanted: Verdict | None
) -> None:
    assert latest_judged(verdicts) == wanted
    assert snapshot(*verdicts).verdict == wanted
    assert own_verdict(snapshot(*verdicts)) == wanted


def test_known_content_keeps_its_verdict_after_an_error(tmp_path: Path) -> None:
    ledger = VerdictLog(str(tmp_path))
    for verdict in (PASS, ERROR):
        ledger.add(LoggedVerdict(SnapshotId("1" * 40), "content", "facts", "npm test", verdict, "services"))
    known = ledger.known("content", "facts")
    assert known is not None
    assert (known.verdict.status, known.services) == (VerdictStatus.PASS, "services")


def test_rewritten_log_has_no_service_states(tmp_path: Path) -> None:
    ledger = VerdictLog(str(tmp_path))
    ledger.add(LoggedVerdict(SnapshotId("1" * 40), "content", "facts", "npm test", PASS, "services"))
    ledger.rewrite(lambda content: content + "2")
    known = ledger.known("content2", "facts")
    assert known is not None
    assert known.services == ""


def test_only_executed_or_loaded_files_refer_to_the_living_environment(tmp_path: Path) -> None:
    old = b"/home/me/shop"
    tree = tmp_path / "tree"
    files = {
        ".next/cache/webpack/0.pack": b"\0" + old + b"\0",
        ".next/server/page.js": b"require('" + old + b"/x')\n",
        "node_modules/.vite/meta.json": b'{"root": "' + old + b'"}\n',
        "node_modules/addon/build.node": b"\0" + old + b"\0",
        "lib/native": b"\x7fELF\0" + old + b"\0",
        "data/index.bin": b"\0" + old + b"\0",
        "__pycache__/app.pyc": b"\0" + old + b"\0",
    }
    for name, data in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    moved = Relocation.between(["/home/me/shop"], str(tree))

    def names(paths: list[bytes]) -> set[str]:
        return {Path(path.decode()).relative_to(tree).as_posix() for path in paths}

    programs = {"node_modules/addon/build.node", "lib/native"}
    assert names(live_paths_in(str(tree), moved)) == {*programs, ".next/server/page.js"}
    assert names(rewrite_live_paths(str(tree), moved)) == programs
    assert b"/home/me/shop" not in (tree / ".next/server/page.js").read_bytes()
