"""Sizes of snapshots in `--json --stat`, compared with the output of find for the same files."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.support.repository import Repo


def measured(repo: Repo, *words: str) -> list[dict[str, object]]:
    found = json.loads(repo.run("envlog", "--json", "--stat", *words, check=True).stdout)
    assert isinstance(found, list)
    return found


def on_disk(path: Path) -> tuple[int, int]:
    """Return number and total size of the files below a directory without '.git', as find reports them."""
    words = ["find", str(path), "-name", ".git", "-prune", "-o", "!", "-type", "d", "-printf", "%s\\n"]
    sizes = subprocess.run(words, capture_output=True, check=True, text=True).stdout.split()
    return len(sizes), sum(map(int, sizes))


def test_sizes_agree_with_find(repo: Repo) -> None:
    sides = []
    for number in range(4):
        repo.write(f"src/{number}.py", b"x" * 1000 * (number + 1))
        if number == 1:
            # A file stored in chunks: its own size counts, not that of its pointer.
            repo.write("data/large.bin", bytes(range(256)) * 65536)
            (repo.path / "link").symlink_to("src")
        if number == 2:
            shutil.rmtree(repo.path / "data")
            repo.write("src/0.py", b"shorter")
        if number == 3:
            shutil.rmtree(repo.path / "src")
            repo.write("src", b"a file now")
        repo.run("envlog", "capture", str(number), check=True)
        sides.append(on_disk(repo.path))
    told = [(one["extent"]["files"], one["extent"]["bytes"]) for one in measured(repo)]  # type: ignore[index]
    assert told == sides[::-1]
    # A range and a single snapshot have the same sizes as in the full list.
    assert [(one["extent"]["files"], one["extent"]["bytes"]) for one in measured(repo, "@~3..@~1")] == sides[
        2:0:-1
    ]  # type: ignore[index]
    assert [(one["extent"]["files"], one["extent"]["bytes"]) for one in measured(repo, "--grep", "2")] == [
        sides[2]
    ]  # type: ignore[index]


def test_areas_belong_to_the_step_and_packages_to_the_snapshot(repo: Repo) -> None:
    site = ".venv/lib/python3.11/site-packages"
    repo.write(".venv/pyvenv.cfg", "home = /usr/bin\n")
    repo.write(
        f"{site}/click-8.1.7.dist-info/METADATA", "Metadata-Version: 2.1\nName: click\nVersion: 8.1.7\n\n"
    )
    repo.write(f"{site}/click/core.py", b"c" * 5000)
    repo.run("envlog", "capture", "one", check=True)
    repo.write(
        f"{site}/flask-3.0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: flask\nVersion: 3.0.1\n\n"
    )
    repo.write(f"{site}/flask/core.py", b"f" * 7000)
    (repo.path / site / "click" / "core.py").unlink()
    repo.run("envlog", "capture", "two", check=True)
    newest, oldest = measured(repo)
    assert [one["extent"]["packages"]["pip"] for one in (oldest, newest)] == [1, 2]  # type: ignore[index]
    areas = {area["path"]: area for area in newest["extent"]["areas"]}  # type: ignore[index]
    assert areas[f"{site}/flask/core.py"]["bytes_after"] == 7000
    assert areas[f"{site}/click/core.py"] == {
        "path": f"{site}/click/core.py",
        "added": 0,
        "modified": 0,
        "removed": 1,
        "bytes_before": 5000,
        "bytes_after": 0,
    }


def test_json_without_stat_has_no_sizes(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    (one,) = json.loads(repo.run("envlog", "--json", check=True).stdout)
    assert "extent" not in one


def test_stat_does_not_change_the_listed_snapshots(repo: Repo) -> None:
    for number in range(3):
        repo.write("a.txt", f"{number}\n")
        repo.run("envlog", "capture", str(number), check=True)
    plain = json.loads(repo.run("envlog", "--json", check=True).stdout)
    for one in (found := measured(repo)):
        del one["extent"]
    assert found == plain
