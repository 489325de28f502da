"""Make the archives: check out each commit in a temporary directory, run its program in a new repository, pack the
result.

`python -m tests.oldhistories.build e4dcbc0 c4f051b` writes `archives/<date>-<commit>.tar.xz`. The dependencies come
from the interpreter that runs this module; it installs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.conftest import sealed_environment
from tests.support.oracle import kernel_listing

CHECKOUT = Path(__file__).resolve().parents[2]
ARCHIVES = Path(__file__).with_name("archives")
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {source!r})
sys.argv[0] = {name!r}
try:
    from git_envhist.cli.main import {program}
except ImportError:  # the name in versions before the packages were renamed
    from git_envhist.cli.entry import {program}
sys.exit({program}())
"""
SECRET = b"TOKEN=ghp_0123456789abcdefghijABCDEFGHIJ012345\nNAME=value\n"


class Old:
    """A repository in which the program of one commit runs."""

    def __init__(self, base: Path, source: Path) -> None:
        self.root = base / "repo"
        self.root.mkdir()
        (base / "home").mkdir()
        (base / "bin").mkdir()
        self.env = {**os.environ, **sealed_environment(base / "home"), "GIT_ENVHIST_WORKERS": "here"}
        for program in ("envlog", "envdiff", "envrestore"):
            path = base / f"bin/git-{program}"
            path.write_text(
                SCRIPT.format(
                    python=sys.executable, source=str(source), name=f"git-{program}", program=program
                )
            )
            path.chmod(0o755)
        self.env["PATH"] = f"{base / 'bin'}{os.pathsep}{self.env['PATH']}"

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command in the repository and return its output."""
        done = subprocess.run(words, cwd=self.root, env=self.env, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout.strip()

    def snapshot(self, intent: str) -> dict[str, object]:
        """Capture, and return the id with what lstat and hashlib see of each path."""
        found = kernel_listing(self.root)
        oid = self.run("git-envlog", "capture", "--porcelain", "-m", intent).split()[-1]
        rows = {
            path.decode("latin-1"): [
                one.kind,
                one.mode,
                one.mtime_ns,
                one.sha256,
                (one.target or b"").decode(),
            ]
            for path, one in found.items()
            if path
        }
        return {"id": oid, "intent": intent, "paths": rows}


def main() -> int:
    for commit in sys.argv[1:]:
        print(build(commit))
    return 0


def build(commit: str) -> Path:
    """Write the archive of one commit and return its path."""
    words = ["git", "-C", str(CHECKOUT), "show", "-s", "--format=%cd %h", "--date=format:%Y%m%d%H%M", commit]
    name = "-".join(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    with tempfile.TemporaryDirectory() as temporary:
        base, source = Path(temporary) / "made", Path(temporary) / "source"
        base.mkdir()
        source.mkdir()
        packed = subprocess.run(
            ["git", "-C", str(CHECKOUT), "archive", commit, "git_envhist"], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(source)], input=packed.stdout, check=True)
        snapshots = _live(Old(base, source))
        (base / "expected.json").write_text(json.dumps(snapshots))
        for left in (base / "bin", *base.glob("repo/.git/hooks")):
            shutil.rmtree(left, ignore_errors=True)
        place = ARCHIVES / f"{name}.tar.xz"
        with tarfile.open(place, "w:xz", preset=9) as archive:
            for part in sorted(os.listdir(base)):
                archive.add(base / part, part)
    return place


def _live(old: Old) -> list[dict[str, object]]:
    """Use every feature that leaves its own kind of record and that all versions have."""
    root = old.root
    old.run("git", "init", "-q", "--template=", ".")
    (root / "app.py").write_text("print(1)\n")
    old.run("git", "add", "app.py")
    old.run("git", "commit", "-q", "-m", "first")
    (root / ".env").write_bytes(SECRET)
    (root / "odd \udcff\n").write_bytes(b"odd")
    (root / "dir/empty").mkdir(parents=True)
    (root / "dir/run.sh").write_text("#!/bin/sh\n")
    (root / "dir/run.sh").chmod(0o750)
    os.utime(root / "dir/run.sh", ns=(10**18, 1_234_567_890_123_456_789))
    (root / "link").symlink_to("dir/run.sh")
    os.link(root / "dir/run.sh", root / "second name")
    os.mkfifo(root / "pipe")
    (root / "big").write_bytes(b"a line of a big file\n" * 600_000)
    made = [old.snapshot("one")]
    (root / "app.py").write_text("print(2)\n")
    (root / ".env").write_bytes(SECRET + b"MORE=1\n")
    shutil.rmtree(root / "dir/empty")
    (root / "dir/new").write_bytes(b"new")
    made.append(old.snapshot("two"))
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link/file").write_bytes(b"a directory now")
    made.append(old.snapshot("three"))
    # The first versions had no restore.
    old.run("git-envrestore", str(made[0]["id"]), check=False)
    (root / "after").write_bytes(b"after the restore")
    made.append(old.snapshot("four"))
    return made


if __name__ == "__main__":
    sys.exit(main())
