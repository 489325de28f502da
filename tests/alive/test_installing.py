"""Captures while package managers install: each file is in a state the manager wrote, or reported as
unstable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from tests.end_to_end.captures import assert_holds
from tests.support.needs import require
from tests.support.oracle import git_fsck
from tests.support.repository import Repo
from tests.support.snapshot import contents

pytestmark = pytest.mark.full  # packages come from an index

# The machine's settings determine the package sources; the environment is from before the tests were
# isolated.
MACHINE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def install(repo: Repo, place: bytes, words: list[str], tmp_path: Path) -> None:
    """Capture during an installation, and compare every snapshot with the final files."""
    cache = {"PIP_CACHE_DIR": str(tmp_path / "cache"), "npm_config_cache": str(tmp_path / "cache")}
    history = EnvHistory.open(str(repo.path), workers="fork", one_command=True)
    taken = []
    with open(tmp_path / "said", "wb") as said:
        child = subprocess.Popen(words, cwd=repo.path, env={**MACHINE, **cache}, stdout=said, stderr=said)
        while child.poll() is None:
            taken.append(history.capture("under way"))
    if child.returncode != 0:
        pytest.skip(f"{words[0]} cannot install it here: {(tmp_path / 'said').read_text()[-300:]}")
    last = history.capture("done")
    assert last.missing == ()
    assert last.snapshot is not None
    assert_holds(repo, last.snapshot.commit)
    final = contents(repo, last.snapshot.commit)
    assert len([path for path in final if path.startswith(place)]) > 5
    for one in taken:
        assert one.snapshot is not None
        told = {missing.path for missing in one.missing}
        for path, data in contents(repo, one.snapshot.commit).items():
            # The bytes that snapshot and final file have in common are the beginning of the file.
            assert path in told or path not in final or final[path].startswith(data) or is_remade(path)
    assert git_fsck(repo.path) == ""


def is_remade(path: bytes) -> bool:
    """Return whether a manager rewrites the file: lists, and scripts changed after they were written."""
    return os.path.basename(path) in (b"package.json", b"package-lock.json", b".package-lock.json", b"RECORD")


def test_captures_while_pip_installs(repo: Repo, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", repo.path / "venv"], check=True)
    words = [sys.executable, "-m", "pip", "--python", "venv/bin/python", "install", "--no-input", "pygments"]
    install(repo, b"venv/lib", words, tmp_path)


def test_captures_while_npm_installs(repo: Repo, tmp_path: Path) -> None:
    npm = require("npm", MACHINE.get("PATH"))
    repo.write("package.json", '{"name": "work", "version": "1.0.0", "private": true}\n')
    install(repo, b"node_modules/", [npm, "install", "--no-audit", "--no-fund", "semver"], tmp_path)
