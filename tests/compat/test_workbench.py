"""The `workbench` command: a platform's command line on git-envhist, together with the platform's own checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from git_envhist import EnvHistory
from git_envhist.compat.workbench import without_platform_options
from git_envhist.compat.workbench.platform_id import PlatformError, find_id
from git_envhist.model import Trigger
from git_envhist.tracking.effects import read_list
from tests.cli.test_json import validate
from tests.support.repository import Repo, Result

PLATFORM = """#!/bin/sh
# A platform with its own checkpoints, one per line of a file.
case $1 in
create)
    n=$(($(wc -l <"$PLATFORM") + 1))
    echo "v$n 2026-03-06T14:30:0${n}Z by us" >>"$PLATFORM"
    echo "Checkpoint v$n created";;
list) echo "ID CREATED COMMENT"; cat "$PLATFORM";;
esac
"""


def workbench(repo: Repo, *words: str, check: bool = True) -> Result:
    return repo.run("git-envhist", "workbench", *words, check=check)


def answer(repo: Repo, *words: str) -> Any:
    return json.loads(workbench(repo, *words, "--json").out)


@pytest.fixture
def platform(repo: Repo, tmp_path: Path) -> Path:
    program, kept = tmp_path / "platform", tmp_path / "kept"
    program.write_text(PLATFORM)
    program.chmod(0o755)
    kept.write_text("v1 2026-03-06T14:00:00Z nightly\nv2 2026-03-06T14:10:00+00:00\n")
    repo.env["PLATFORM"] = str(kept)
    repo.git("config", "envhist.platformCreate", f"{program} create")
    repo.git("config", "envhist.platformList", f"{program} list")
    return kept


def test_checkpoints_are_created_listed_shown_restored_and_deleted(repo: Repo) -> None:
    assert workbench(repo, "checkpoint", "create", "clean setup").out == "Checkpoint v1 created\n"
    repo.write("app.py", b"broken")
    made = workbench(repo, "checkpoint", "create", "--comment", "broken", "--verify", "false").out
    assert made == "Checkpoint v2 created: fail\n"
    listed = workbench(repo, "checkpoint", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["ID", "v2", "v1"]
    assert listed[2].endswith("-      clean setup")
    assert "Comment:   clean setup" in workbench(repo, "checkpoint", "info", "v1").out
    assert "Restored v1" in workbench(repo, "restore", "v1").out
    assert repo.read("app.py") == b"print('hello')\n"
    repo.run("envrestore", "--undo", check=True)
    assert repo.read("app.py") == b"broken"
    assert "undrop" in workbench(repo, "checkpoint", "delete", "v2").out
    assert [one["id"] for one in answer(repo, "checkpoint", "list")] == ["v1"]
    assert workbench(repo, "restore", "v2", check=False).status == 4
    # The id of a deleted checkpoint is not used again.
    assert workbench(repo, "checkpoint", "create", "again").out.startswith("Checkpoint v3 created")


def test_platform_checkpoint_is_created_with_ours_and_provides_the_id(repo: Repo, platform: Path) -> None:
    assert answer(repo, "checkpoint", "create", "--comment", "before upgrade")["id"] == "v3"
    assert len(platform.read_text().splitlines()) == 3
    card = repo.run("envlog", "show", "v3", check=True).out
    assert "External:  v3" in card
    assert "before upgrade" in card
    assert [one["id"] for one in answer(repo, "checkpoint", "list")] == ["v3", "v2", "v1"]


def test_platform_checkpoints_are_listed_as_observed(repo: Repo, platform: Path) -> None:
    workbench(repo, "checkpoint", "create", "ours")
    listed = {one["id"]: one for one in answer(repo, "checkpoint", "list")}
    assert (listed["v1"]["created_at"], listed["v1"]["comment"]) == ("2026-03-06T14:00:00+00:00", "nightly")
    assert listed["v1"]["observed_at"] is not None
    assert (listed["v1"]["intent"], listed["v3"]["intent"], listed["v1"]["snapshot"]) == (None, "ours", None)
    printed = workbench(repo, "checkpoint", "list").out
    assert "observed, no intent recorded (nightly)" in printed
    log = repo.run("envlog", "--date=iso", check=True).out
    assert "v1  observed: made 2026-03-06 14:00:00 +0000, found " in log
    assert log.count("no intent recorded") == 2
    shown = repo.run("envlog", "show", "v2", check=True).out
    assert "observed v2" in shown
    assert "Made:      Fri Mar 6 14:10:00 2026 +0000" in shown
    assert workbench(repo, "restore", "v1", check=False).status == 3
    assert workbench(repo, "checkpoint", "delete", "v1", check=False).status == 3
    # A checkpoint is recorded once; listing it again does not change the record.
    before = EnvHistory.open(repo.path).observed.all()
    assert [one.external_id for one in before] == ["v1", "v2"]
    workbench(repo, "checkpoint", "list")
    assert EnvHistory.open(repo.path).observed.all() == before


def test_observed_checkpoints_are_recorded_manually_and_in_json(repo: Repo) -> None:
    found = json.loads(
        repo.run("envlog", "observe", "cp-9", "--at", "2026-03-06T14:30:00Z", "--source", "vm", "--json").out
    )
    assert (found["observed"][0]["external_id"], found["observed"][0]["source"]) == ("cp-9", "vm")
    validate("observed", found)
    again = repo.run("envlog", "observe", "cp-9", check=True).out
    assert again == "'cp-9' is recorded already\n"
    listed = json.loads(repo.run("envlog", "observe", "--list", "--json", check=True).out)
    assert listed == found
    shown = json.loads(repo.run("envlog", "show", "cp-9", "--json", check=True).out)
    assert shown == found
    logged = json.loads(repo.run("envlog", "--json", check=True).out)
    assert logged[0]["observed"] == found["observed"]
    assert repo.run("envlog", "observe", check=False).status == 129
    assert repo.run("envlog", "observe", "-m", "of what?").status == 129


def test_external_id_finds_the_snapshot(repo: Repo) -> None:
    history = EnvHistory.open(repo.path)
    first = history.capture("one", external_id="v8")
    repo.write("app.py", b"2")
    second = history.capture("two", meta=[("checkpoint", "ckpt_77"), ("other", "v8")])
    assert history.resolve("v8").id == first.id
    assert history.resolve("ckpt_77").id == second.id
    assert f"snapshot {first.id}" in repo.run("envlog", "show", "v8", check=True).out
    repo.write("app.py", b"3")
    third = history.capture("three", external_id="v8")
    assert history.resolve("v8").id == third.id
    history.name("v8", first)
    assert repo.run("envlog", "show", "v8").status == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v1 2026-03-06T14:30:00Z before\nv2 2026-03-06 14:31:00 after it\n", ["v1", "v2"]),
        ('[{"id": "a", "created_at": "2026-03-06T14:30:00Z", "comment": "x"}]', ["a"]),
        ('{"checkpoints": [{"version": 3, "create_time": 1772807400}, {"version": 4}]}', ["3"]),
        (
            '{"id": "a", "time": "2026-03-06T14:30:00"}\n{"id": "b", "time": "2026-03-06T14:31:00"}\n',
            ["a", "b"],
        ),
        ("ID  CREATED  COMMENT\n\nnothing here\n", []),
        ("-rf 2026-03-06T14:30:00Z\n\x1b[2J 2026-03-06T14:30:00Z\n", []),
    ],
)
def test_platform_lists_are_parsed(text: str, expected: list[str]) -> None:
    assert [one.external_id for one in read_list(text)] == expected


def test_failures_are_reported_and_lose_nothing(repo: Repo) -> None:
    workbench(repo, "checkpoint", "create", "ours")
    repo.git("config", "envhist.platformList", "echo out of order >&2; exit 7")
    listed = workbench(repo, "checkpoint", "list")
    assert "out of order" in listed.err
    assert "ours" in listed.out
    repo.git("config", "envhist.platformCreate", "echo done")
    refused = workbench(repo, "checkpoint", "create", "x", check=False)
    assert (refused.status, "printed no checkpoint id" in refused.err) == (3, True)
    for words in ((), ("checkpoint",), ("checkpoint", "explode"), ("restore",)):
        assert workbench(repo, *words, check=False).status == 129


STREAM = """{"type": "info", "data": "Creating checkpoint...", "time": "2026-01-05T10:30:00Z"}
{"type": "info", "data": "Saving 14 files", "time": "2026-01-05T10:30:01Z"}
{"type": "complete", "data": "Checkpoint v8 created (2 files, 14 KB)", "time": "2026-01-05T10:30:02Z"}
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Created checkpoint v5 (2 files, 14 KB)\n", "v5"),
        ("Checkpoint v5 created in 0.3s\n", "v5"),
        ("Checkpoint created: v1\n", "v1"),
        ("Saving 14 files\nCheckpoint created as snap_77\nTook 300 ms\n", "snap_77"),
        (STREAM, "v8"),
        ("saving\n" + STREAM, "v8"),
        (json.dumps([json.loads(line) for line in STREAM.splitlines()]), "v8"),
        ('{"id": "ckpt_1", "created_at": "2026-03-06T14:30:00Z", "size": 52428800}', "ckpt_1"),
        ('{\n  "checkpoint": {"id": "v9", "files": 3},\n  "took_ms": 300\n}', "v9"),
        ('{"version": 12}\n', "12"),
        ("Checkpoint id: 2026-03-06T14:30 (3 files)\n", "2026-03-06T14:30"),
        ("v3\n", "v3"),
        ("17\n", "17"),
        ("made snap-9.\n", "snap-9"),
        ("from v4 to v5 in 20 seconds", "v5"),
        ("done", None),
        ("", None),
        ("id: \x1b[2J7;rm", None),
    ],
)
def test_id_of_a_platforms_checkpoint_is_found_in_its_output(output: str, expected: str | None) -> None:
    assert find_id(output) == expected


def test_error_event_of_a_platform_is_an_error() -> None:
    with pytest.raises(PlatformError, match="disk full"):
        find_id('{"type": "info", "data": "Creating v7"}\n{"type": "error", "error": "disk full"}\n')


@pytest.mark.parametrize(
    "words",
    [
        ("-s", "dev", "checkpoint", "create", "--comment", "x"),
        ("checkpoint", "-o", "org", "create", "-s=dev", "--comment", "x"),
        ("checkpoint", "create", "--sprite", "dev", "--comment", "x", "--org=org", "--debug=/tmp/log"),
        ("checkpoint", "create", "--comment", "x", "-sprite", "dev", "--debug"),
    ],
)
def test_platform_options_are_accepted_anywhere(words: tuple[str, ...]) -> None:
    assert without_platform_options(words) == ["checkpoint", "create", "--comment", "x"]


def test_comment_that_looks_like_an_option_of_a_platform_is_kept() -> None:
    words = ["checkpoint", "create", "--comment", "--debug"]
    assert without_platform_options(words) == words
    assert without_platform_options(["checkpoint", "create", "--", "-s"])[-2:] == ["--", "-s"]


@pytest.mark.full
def test_platform_scripts_run_unchanged(repo: Repo, platform: Path) -> None:
    repo.git("config", "--unset", "envhist.platformList")
    repo.git("config", "envhist.platformCreate", "echo 'Created checkpoint v5 (2 files, 14 KB)'")
    assert (
        workbench(repo, "checkpoint", "create", "-s", "dev", "--comment", "one").out
        == "Checkpoint v5 created\n"
    )
    repo.git("config", "--unset", "envhist.platformCreate")
    repo.write("app.py", b"2")
    repo.run("envlog", "capture", "--if-changed", check=True)
    workbench(repo, "checkpoint", "create", "-s", "dev", "-comment", "two")
    listed = answer(repo, "checkpoint", "ls", "-s", "dev", "--history", "v6")
    assert [one["id"] for one in listed] == ["v6"]
    history = EnvHistory.open(repo.path)
    repo.write("app.py", b"3")
    automatic = history.capture("by itself", trigger=Trigger.WATCH)
    assert [one["id"] for one in answer(repo, "checkpoint", "list")] == ["v6", "v5"]
    listed = answer(repo, "checkpoint", "list", "--include-auto", "-o", "org")
    assert [(one["id"], one["is_auto"]) for one in listed] == [
        (automatic.id[:7], True),
        ("v6", False),
        ("v5", False),
    ]
    for words in (("restore", "v5"), ("restore", automatic.id[:7]), ("checkpoint", "restore", "v5")):
        assert f"Restored {words[-1]}" in workbench(repo, *words, "-s", "dev").out
    assert "Restored v6" in workbench(repo, "checkpoint", "restore", "-s", "dev", "v6").out
