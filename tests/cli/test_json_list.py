"""A list of snapshots as JSON: one git process compares all, with the same result as for each alone."""

from __future__ import annotations

import json
import shutil

from git_envhist.diff.compare_series import AT_ONCE
from tests.support.repository import Repo
from tests.tui.growing import grow_timeline


def listed(repo: Repo, *words: str) -> list[dict[str, object]]:
    found = json.loads(repo.run("envlog", "--json", *words, check=True).stdout)
    assert isinstance(found, list)
    return found


def test_list_and_show_print_equal_json(repo: Repo) -> None:
    repo.write("data/large.bin", bytes(range(256)) * 65536)
    repo.write("src/a.py", "1\n")
    repo.run("envlog", "capture", "one", check=True)
    (repo.path / "empty").mkdir()
    (repo.path / "src/a.py").rename(repo.path / "src/b.py")
    repo.write(".env", "A=1\n")
    repo.run("envlog", "capture", "two", "--verify", "echo said; false", check=True)
    shutil.rmtree(repo.path / "data")
    (repo.path / "empty").rmdir()
    repo.write("empty", "a file now")
    repo.run("envlog", "capture", "three", check=True)
    grow_timeline(repo, 2 * AT_ONCE)
    repo.write("src/b.py", "2\n")
    repo.run("envlog", "capture", "four", check=True)
    told = listed(repo)
    assert len(told) == 4 + 2 * AT_ONCE
    for place in (0, 1, AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE, -3, -2, -1):
        card = json.loads(repo.run("envlog", "show", "--json", str(told[place]["id"]), check=True).stdout)
        # The full view also reads changed files.
        assert card["story"][: len(told[place]["story"])] == told[place]["story"]  # type: ignore[arg-type]
        assert {**card, "story": told[place]["story"]} == told[place]
    assert listed(repo, "--reverse") == told[::-1]
    assert [one["id"] for one in listed(repo, "-n3")] == [one["id"] for one in told[:3]]
