"""Run every installed package manager: `python -m tests.probes.real [--keep] [name…]` prints a table.

`bytes/<name>/make.sh` installs something into an empty directory and prints what the manager lists, one line
each: key, value, and `auto` for a dependency. The facts of a snapshot of the directory must be the same;
otherwise the program exits with status 1. Managers that are not installed are listed as such.

With `--keep` the files with the information are stored in `bytes/<name>/tree`, and the manager's output in
`bytes/<name>/says`, for tests on machines without the manager.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from git_envhist import probes
from git_envhist.api import EnvHistory
from git_envhist.capture.file_triggers import compile_file_triggers, matches_name
from git_envhist.model import Fact
from git_envhist.probes.go import INLINE, MARK
from git_envhist.snapshots.fact_text import read_fact
from git_envhist.worktree.stat_cache import DirectoryRecord
from tests.conftest import sealed_environment
from tests.support.repository import Repo, make_repo

BYTES = Path(__file__).parent / "bytes"
NOT_HERE = 77
PRELUDE = f"""set -eu
need() {{ for one; do command -v $one > /dev/null || {{ echo "$one is not here" >&2; exit {NOT_HERE}; }}; done; }}
"""
PACKED = ".gz"
LARGEST_PLAIN = 1 << 13
LISTS_IN_FRONT = {
    ".pnp.cjs": b"__dirname});",
    ".pnp.js": b"__dirname});",
}
"""Formats whose list of packages is at the start; the rest of the file is program code."""
HEADERS = ("METADATA", "PKG-INFO")
"""Formats with headers first and a description after them."""
EMPTY_LINE = re.compile(rb"\r?\n\r?\n")
SECONDS = 300
MACHINE = dict(os.environ)
"""The machine's settings determine the package sources."""
OTHERS = ("declared",)
"""Probes of requested packages, which no package manager lists."""
Said = set[tuple[str, str, bool]]


class NotHere(Exception):
    """A program that a recipe needs is not installed."""


class Broken(Exception):
    """A recipe failed."""


def names() -> list[str]:
    """Return the names of the recipes."""
    return sorted(path.parent.name for path in BYTES.glob("*/make.sh"))


def make(name: str, home: Path, environ: Mapping[str, str]) -> tuple[Path, str, str]:
    """Run a recipe; return the directory that it filled, the manager's list, and its version."""
    place = home / "place"
    place.mkdir(parents=True)
    # rustup keeps its compilers in the home in which it was installed.
    rustup = environ.get("RUSTUP_HOME") or os.path.join(environ.get("HOME", "/"), ".rustup")
    environ = {
        **environ,
        "RUSTUP_HOME": rustup,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "npm_config_cache": str(home / "npm"),
    }
    script = PRELUDE + (BYTES / name / "make.sh").read_text()
    done = subprocess.run(
        ["sh", "-c", script], cwd=place, env=environ, capture_output=True, timeout=SECONDS, check=False
    )
    if done.returncode == NOT_HERE:
        raise NotHere(done.stderr.decode(errors="replace").strip())
    if done.returncode != 0:
        raise Broken(f"NOT whole, {done.returncode}: {done.stderr.decode(errors='replace')}")
    return place, done.stdout.decode(), (home / "version").read_text().strip()


def parse(said: str, place: str = "") -> Said:
    """Parse the manager's list into facts."""
    found = set()
    for line in said.splitlines():
        auto = line.endswith(" auto")
        key, _, value = line.removesuffix(" auto").strip().partition(" ")
        found.add((place + key, value, auto))
    return found


def told(repo: Repo) -> Said:
    """Return the package facts of the newest snapshot."""
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    said: Said = set()
    for probe, line in probes.file_probes().items():
        if line.kind == probes.PACKAGES and probe not in OTHERS:
            text = repo.git("show", f"{ref}:.envhist/facts/{probe}").splitlines()[1:]
            said |= {_as_said(read_fact(probe, line.encode("utf-8", "surrogateescape"))) for line in text}
    return said


def _as_said(fact: Fact | None) -> tuple[str, str, bool]:
    assert fact is not None
    return fact.key, fact.value, fact.auto


def fill(tree: Path, place: Path) -> None:
    """Copy the stored files into a directory."""
    shutil.copytree(tree, place, symlinks=True)
    for packed in place.rglob("*" + PACKED):
        plain = packed.with_suffix("")
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        plain.chmod(packed.stat().st_mode)
        packed.unlink()


def keep(name: str, place: Path, said: str, version: str) -> None:
    """Store the files with the information."""
    tree = BYTES / name / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    wake = compile_file_triggers(
        {probe: line for probe, line in probes.file_probes().items() if probe not in OTHERS}
    )
    for directory, _, files in os.walk(place):
        path = os.path.relpath(directory, place)
        record = DirectoryRecord(
            b"" if path == "." else os.fsencode(path), names=sorted(map(os.fsencode, files))
        )
        named = {record.names[number] for part in wake.at(record.path) for number in part.numbers(record)}
        for file in named:
            _keep_file(Path(directory, os.fsdecode(file)), tree / path / os.fsdecode(file))
    (BYTES / name / "says").write_text(said)
    (BYTES / name / "version").write_text(f"{version}\n")


def _keep_file(file: Path, target: Path) -> None:
    data = file.read_bytes() if file.is_file() and not file.is_symlink() else None
    if data is None or (MARK not in data and file.parent.name == "bin"):
        return
    if MARK in data:
        data = _blanked(data)
    elif file.name in HEADERS:
        data = EMPTY_LINE.split(data)[0] + b"\n"
    elif file.name in LISTS_IN_FRONT:
        data = data[: (data + LISTS_IN_FRONT[file.name]).index(LISTS_IN_FRONT[file.name]) + 100]
    elif not any(_is_read(file, pattern) for line in probes.file_probes().values() for pattern in line.reads):
        data = b""  # only its name matters
    packed = len(data) > LARGEST_PLAIN
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = target.with_name(target.name + PACKED) if packed else target
    kept.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    kept.chmod(0o755 if file.stat().st_mode & 0o111 else 0o644)


def _is_read(file: Path, pattern: bytes) -> bool:
    directory, slash, name = pattern.rpartition(b"/")
    return matches_name(os.fsencode(file.name), (name,)) and (
        not slash or os.fsencode(file.parent.name) == directory
    )


def _blanked(program: bytes) -> bytes:
    """Return a program reduced to its header, the text after the marker, and the texts it points to."""
    blank = bytearray(len(program))
    mark = next(at for at in range(0, len(program), 16) if program.startswith(MARK, at))
    kept = [(0, 4096), (mark, 4096)]
    if not program[mark + 15] & INLINE:
        pointers = struct.unpack_from("<QQ", program, mark + 16)
        pairs = [_place(program, address) for address in pointers]
        texts = [struct.unpack_from("<QQ", program, at) for at in pairs]
        kept += [(at, 16) for at in pairs] + [(_place(program, start), size) for start, size in texts]
    for at, size in kept:
        blank[at : at + size] = program[at : at + size]
    return bytes(blank)


def _place(program: bytes, address: int) -> int:
    """Return the file offset of a loaded address, from the program headers of a 64-bit program."""
    start, count = struct.unpack_from("<Q", program, 32)[0], struct.unpack_from("<H", program, 56)[0]
    for number in range(count):
        kind, _, offset, loaded, _, size = struct.unpack_from("<IIQQQQ", program, start + 56 * number)
        if kind == 1 and loaded <= address < loaded + size:
            return int(offset + address - loaded)
    raise AssertionError(f"{address:x} is not loaded")


def run(name: str, keeping: bool) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory(prefix="real-") as home:
        try:
            place, said, version = make(name, Path(home), MACHINE)
        except NotHere as why:
            return f"not run: {why}"
        except Broken as why:
            return str(why)
        sealed = Path(home) / "sealed"
        sealed.mkdir()
        os.environ.update(sealed_environment(sealed))
        repo = make_repo(place, commit=False)
        EnvHistory.open(str(place), workers="here", one_command=True).capture("what it made")
        wanted, found = parse(said), told(repo)
        for one in sorted(wanted ^ found):
            print(f"  {name}: {'only the manager' if one in wanted else 'only we'}: {one}")
        if keeping:
            shutil.rmtree(place / ".git")
            keep(name, place, said, version)
        return f"{version}: {len(wanted)} packages" + ("" if wanted == found and wanted else ", NOT the same")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--keep", action="store_true", help="keep the bytes for the tests")
    arguments = parser.parse_args()
    wrong = False
    for name in arguments.names or names():
        line = run(name, arguments.keep)
        wrong |= "NOT" in line
        print(f"{name:14} {line}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
