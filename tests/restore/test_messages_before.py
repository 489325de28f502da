"""Messages before a restore starts: partial restores, odd names, interrupted restores, too many steps."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.test_json import validate
from tests.support.repository import Repo


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


def test_name_with_a_newline_is_quoted_as_git_quotes_it(repo: Repo) -> None:
    repo.write("new\nline", b"one")
    repo.write("new\\nline", b"one")
    first = capture(repo, "one")
    repo.write("new\nline", b"two")
    assert '\n    "new\\nline"\n' in repo.run("envrestore", "-n", first, check=True).out
    repo.write("new\nline", b"one")
    repo.write("new\\nline", b"two")
    assert '\n    "new\\\\nline"\n' in repo.run("envrestore", "-n", first, check=True).out


def test_list_of_snapshots_reports_an_interrupted_restore(repo: Repo) -> None:
    capture(repo, "one")
    assert "broken off" not in repo.run("envrestore", check=True).out
    (repo.path / ".git/envhist/restore").mkdir(exist_ok=True)
    (repo.path / ".git/envhist/restore/journal").write_bytes(b"")
    output = repo.run("envrestore", check=True).out
    assert output.startswith("a restore was interrupted: first git envrestore --continue")


def test_reading_commands_report_an_interrupted_restore(repo: Repo) -> None:
    capture(repo, "one")
    looks = [("envlog",), ("envlog", "status"), ("envdiff",)]
    assert not any(repo.run(*words, check=True).err for words in looks)
    (repo.path / ".git/envhist/restore").mkdir(exist_ok=True)
    (repo.path / ".git/envhist/restore/journal").write_bytes(b"")
    for words in looks:
        assert "a restore was interrupted" in repo.run(*words, check=True).err
    assert not repo.run("envdiff", "@", "@", check=True).err


def test_too_many_undo_steps_are_refused_with_the_possible_number(repo: Repo) -> None:
    for number in range(3):
        repo.write("app.py", b"%d" % number)
        capture(repo, str(number))
    refused = repo.run("envlog", "undo", "99")
    assert (refused.status, repo.read("app.py")) == (4, b"2")
    assert refused.err == (
        "error: there are fewer than 99 earlier states\nhint: the furthest possible: git envrestore --undo 2\n"
    )
    repo.run("envrestore", "--undo", "2", check=True)
    assert repo.read("app.py") == b"0"
    assert "there is no earlier state" in repo.run("envrestore", "--undo").err


def test_partial_restore_is_named_partial(repo: Repo) -> None:
    repo.write("big.bin", os.urandom(500_000))
    repo.git("config", "envhist.budget", "100k")
    first = capture(repo, "without the large one")
    (repo.path / "big.bin").unlink()
    repo.write("app.py", b"2")
    printed = repo.run("envrestore", first, check=True).out
    assert "partial: 1 path missing)" in printed.splitlines()[0]


def test_writing_into_the_environment_warns_that_it_will_be_captured(repo: Repo, tmp_path: Path) -> None:
    first = capture(repo, "one")
    beside = repo.run("envrestore", "--to", str(tmp_path / "beside"), first, check=True)
    assert "next capture" not in beside.err
    inside = repo.run("envrestore", "--to", "copies/one", first, check=True)
    assert inside.err == (
        "warning: 'copies/one' is in the environment: "
        "the next capture includes it unless .envhistignore excludes it\n"
    )
    assert repo.read("copies/one/app.py") == repo.read("app.py")


def test_excluded_path_is_refused_when_nothing_else_is_chosen(repo: Repo) -> None:
    repo.write("venv/a", b"1")
    first = capture(repo, "first")
    (repo.path / "venv/a").unlink()
    repo.write(".envhistignore", b"/venv/\n")
    before = repo.git("for-each-ref")
    refused = repo.run("envrestore", first, "--", "venv")
    assert (refused.status, refused.out) == (3, "")
    assert refused.err.startswith("error: 'venv' is excluded from the environment by .envhistignore")
    assert repo.git("for-each-ref") == before
    (repo.path / ".envhistignore").unlink()
    repo.run("envrestore", first, "--", "venv", check=True)
    assert repo.read("venv/a") == b"1"


def site(repo: Repo, *packages: str) -> None:
    """Install exactly these packages in the virtual environment."""
    place = ".venv/lib/python3.11/site-packages"
    shutil.rmtree(repo.path / place, ignore_errors=True)
    repo.write(".venv/pyvenv.cfg", "version = 3.11.7\n")
    for package in packages:
        name, _, version = package.partition(" ")
        repo.write(f"{place}/{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")


def test_dry_run_lists_packages_tables_and_variables_like_a_diff(repo: Repo) -> None:
    site(repo, "click 8.1.7")
    repo.write(".env", "API_URL=1\nKEPT=1\n")
    repo.write("sub/.env", "OTHER=1\n")
    with closing(sqlite3.connect(repo.path / "app.db")) as base, base:
        base.execute("create table users (name)")
    first = capture(repo, "one")
    site(repo, "click 8.5.1", "flask 3.0.1")
    repo.write(".env", "DEBUG=1\nKEPT=1\n")
    repo.write("sub/.env", "OTHER=2\n")
    with closing(sqlite3.connect(repo.path / "app.db")) as base, base:
        base.execute("create table sessions (id)")
    lines = repo.run("envrestore", "-n", first, check=True).out.splitlines()
    assert lines[2 : lines.index("write:")] == [
        "  pip       .venv          ~ click 8.5.1 → 8.1.7   - flask 3.0.1",
        "  sqlite    app.db         - table sessions (1 column)",
        "  env       .env           + API_URL   - DEBUG",
        "  env       sub/.env       ~ OTHER",
    ]
    part = repo.run("envrestore", "-n", first, "--", ".env", check=True).out.splitlines()
    assert part[2:4] == ["  env       .env           + API_URL   - DEBUG", "replace:"]
    chosen = repo.run("envrestore", "-n", first, "--only=databases", check=True).out.splitlines()
    assert chosen[2:4] == ["  sqlite    app.db         - table sessions (1 column)", "replace:"]
    output = json.loads(repo.run("envrestore", "-n", "--json", first, check=True).out)
    validate("restored", output)
    assert [(one["probe"], one["key"], one["before"], one["after"]) for one in output["story"]] == [
        ("pip", ".venv/click", "8.5.1", "8.1.7"),
        ("pip", ".venv/flask", "3.0.1", None),
        ("sqlite", "app.db/sessions", "0 rows (id)", None),
        ("env", "sub/.env/OTHER", "***", "***"),
        ("env", ".env/API_URL", None, "***"),
        ("env", ".env/DEBUG", "***", None),
    ]
    assert json.loads(repo.run("envrestore", "--json", first, check=True).out)["story"] == []
