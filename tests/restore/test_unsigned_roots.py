"""Unsigned snapshots change additional roots only with the option --roots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_json import validate
from tests.restore.unsigned import Stranger, make_stranger
from tests.support.snapshots import file, write_snapshot


@pytest.fixture
def stranger(tmp_path: Path, hermetic: object) -> Stranger:
    return make_stranger(tmp_path)


@pytest.fixture
def beside(stranger: Stranger, tmp_path: Path) -> Path:
    place = tmp_path / "nginx"
    place.mkdir()
    (place / "own").write_text("mine")
    stranger.repo.git("config", "envhist.root.nginx", str(place))
    return place


def planted(stranger: Stranger) -> str:
    tree = write_snapshot(
        stranger.repo.path, {b"app.py": file(b"theirs")}, roots={"nginx": {b"evil.conf": file(b"load x;")}}
    )
    return stranger.plant(tree)


def test_unsigned_snapshot_changes_no_additional_root_without_option(
    stranger: Stranger, beside: Path
) -> None:
    done = stranger.repo.run("envrestore", "--allow-unsigned", "--json", planted(stranger))
    answer = json.loads(done.out)
    validate("restored", answer)
    assert stranger.repo.read("app.py") == b"theirs"
    assert sorted(path.name for path in beside.iterdir()) == ["own"]
    assert (beside / "own").read_text() == "mine"
    left = {item["path"]: item["why"] for item in answer["plan"]["left_alone"]}
    assert left["nginx://"] == "in an additional root; only --roots changes it"
    assert answer["roots"] == []


def test_unsigned_snapshot_changes_additional_root_with_option(stranger: Stranger, beside: Path) -> None:
    revision = planted(stranger)
    output = stranger.repo.run("envrestore", "--allow-unsigned", "--roots", "-n", revision)
    assert f"  changes the additional root 'nginx': {beside}\n" in output.out
    done = stranger.repo.run("envrestore", "--allow-unsigned", "--roots", revision)
    named, _, after = done.out.partition("saved")
    assert f"  changes the additional root 'nginx': {beside}\n" in named
    assert after
    assert sorted(path.name for path in beside.iterdir()) == ["evil.conf"]
    stranger.repo.run("envrestore", "--undo", check=True)
    assert sorted(path.name for path in beside.iterdir()) == ["own"]
