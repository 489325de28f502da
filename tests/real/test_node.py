"""A Node project with damaged packages is restored exactly, and npm finds nothing to do."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.real.tools import Project

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full


def test_packages_removed_replaced_or_locked_at_other_versions_are_restored(shop: Project, npm: str) -> None:
    front = shop.path / "front"
    listed = shop.call(npm, "ls", "--all", cwd="front").out
    assert "has-flag@3.0.0" in listed
    assert "has-flag@4.0.0" in listed
    shop.call(npm, "install", "--silent", "semver@6.3.0", "has-flag@4.0.0", "mkdirp@1", cwd="front")
    shutil.rmtree(front / "node_modules/supports-color")
    os.unlink(front / "node_modules/.bin/mkdirp")
    lock = json.loads((front / "package-lock.json").read_text())
    lock["packages"]["node_modules/semver"]["version"] = "99.0.0"
    (front / "package-lock.json").write_text(json.dumps(lock))
    assert shop.call(npm, "test", cwd="front", check=False).status != 0
    assert shop.call(npm, "ls", "--all", cwd="front", check=False).status != 0
    done = shop.repo.run("envrestore", "working", "--", "front", check=True)
    assert "tracked file" not in done.out
    assert shop.differences() == ()
    assert shop.call(npm, "ls", "--all", cwd="front").out == listed
    assert "up to date" in shop.call(npm, "install", "--dry-run", "--offline", cwd="front").out
    assert "fine" in shop.call(npm, "test", cwd="front").out
    assert shop.differences() == ()
