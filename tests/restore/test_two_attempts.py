"""Two scripted agents work on one task in two forks; their work is merged, migrated and tested."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.repository import Repo

PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "slug"
version = "1.0"
"""
BACKEND = """\
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    info = "slug-1.0.dist-info"
    files = {
        "slug.py": "def slug(text):\\n    return text.lower().replace(' ', '-')\\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: slug\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: here\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": "[console_scripts]\\nslug = slug:slug\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{directory}/slug-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "slug-1.0-py3-none-any.whl"
"""
CHECK = """\
import os, pathlib, sqlite3
variables = dict(line.split("=", 1) for line in pathlib.Path(".env").read_text().split())
columns = [row[1] for row in sqlite3.connect("app.db").execute("pragma table_info(posts)")]
if "slug" in columns:
    from slug import slug
    assert slug("A Page") == "a-page"
if pathlib.Path("page.html").exists():
    assert variables["TITLE"] == "Blog"
"""
CHECKED = ".venv/bin/python check.py"
MIGRATION = "alter table posts add column slug text"
FIRST_AGENT = """\
set -e
.venv/bin/python -m pip install -q --no-deps --no-build-isolation --no-index "$PACKAGE"
printf 'slug==1.0\\n' >> requirements.txt
printf '%s;\\n' "$MIGRATION" > migrations/2.sql
git-envlog capture 'the agent adds slug and a migration' --verify '.venv/bin/python check.py'
"""
SECOND_AGENT = """\
set -e
printf '<h1>Blog</h1>\\n' > page.html
printf 'TITLE=Blog\\n' >> .env
git-envlog capture 'the agent adds a page' --verify '.venv/bin/python check.py'
"""


@pytest.fixture
def project(repo: Repo, tmp_path: Path) -> Repo:
    """Return a project with a virtual environment, a database and a migration that was run."""
    if not write_project(repo, tmp_path / "package"):
        pytest.skip("this Python makes no virtual environments with pip")
    repo.env |= {"PIP_CACHE_DIR": str(tmp_path / "cache")}
    repo.env |= {"PACKAGE": str(tmp_path / "package"), "MIGRATION": MIGRATION}
    return repo


def write_project(repo: Repo, package: Path) -> bool:
    """Write and capture a checked project, and the source of a package; return False if there is no pip."""
    made = subprocess.run(
        [sys.executable, "-m", "venv", ".venv"], cwd=repo.path, capture_output=True, check=False
    )
    if made.returncode != 0:
        return False
    package.mkdir()
    (package / "pyproject.toml").write_text(PROJECT)
    (package / "backend.py").write_text(BACKEND)
    repo.write(".gitignore", ".venv/\n.env\napp.db\n")
    repo.write(".env", "API_KEY=abc\n", mode=0o600)
    repo.write("requirements.txt", "# what the blog needs\n")
    repo.write("check.py", CHECK)
    repo.write("migrations/1.sql", "create table posts (id integer primary key, title text);\n")
    migrate(repo, 1)
    repo.commit("a blog")
    repo.run("envlog", "capture", "before two attempts", "--verify", CHECKED, check=True)
    return True


def migrate(repo: Repo, number: int) -> None:
    with closing(sqlite3.connect(repo.path / "app.db")) as database:
        database.executescript(repo.read(f"migrations/{number}.sql").decode())


def attempt(repo: Repo, name: str, script: str) -> tuple[Repo, str]:
    """Let a scripted agent work in a fork; return the fork and its timeline."""
    repo.run("envlog", "fork", "--relocate", f"../{name}", check=True)
    made = Repo(repo.path.parent / name, repo.env)
    made.execute("sh", "-c", script)
    newest = json.loads(made.run("envlog", "--json", "-1", check=True).out)[0]
    assert newest["verify"]["status"] == "pass"
    return made, str(newest["timeline"])


@pytest.mark.full
def test_two_attempts_are_merged_migrated_and_tested(project: Repo) -> None:
    if shutil.which("sh") is None:
        pytest.skip("no shell")
    repo = project
    with_package, first = attempt(repo, "one", FIRST_AGENT)
    with_page, second = attempt(repo, "two", SECOND_AGENT)
    merge_both(repo, first, second)
    # One undo takes back one merge.
    repo.run("envlog", "undo", check=True)
    assert ((repo.path / "page.html").exists(), (repo.path / ".venv/bin/slug").exists()) == (False, True)
    repo.run("envlog", "redo", check=True)
    assert_has_both(repo, with_package.path, with_page.path)


def merge_both(repo: Repo, *timelines: str) -> None:
    for timeline in timelines:
        done = repo.run("envlog", "merge", "--relocate", "--verify-with", CHECKED, timeline)
        assert done.status == 0, done.out + done.err


def assert_has_both(repo: Repo, *forks: Path) -> None:
    """Check that everything of both attempts is here and nothing of their directories; migrate, and test."""
    python = str(repo.path / ".venv/bin/python")
    listed = json.loads(repo.execute(python, "-m", "pip", "list", "--format=json").out)
    assert {"name": "slug", "version": "1.0"} in listed
    assert repo.execute(python, "-m", "pip", "check").status == 0
    assert repo.read(".env") == b"API_KEY=abc\nTITLE=Blog\n"
    assert repo.read("requirements.txt") == b"# what the blog needs\nslug==1.0\n"
    assert repo.read("page.html") == b"<h1>Blog</h1>\n"
    script = (repo.path / ".venv/bin/slug").read_text()
    assert str(repo.path / ".venv") in script
    assert all(str(fork) not in script for fork in forks)
    migrate(repo, 2)
    assert repo.run("envlog", "verify", "--", CHECKED).status == 0
    newest = json.loads(repo.run("envlog", "--json", "-1", check=True).out)[0]
    assert newest["verify"]["status"] == "pass"
