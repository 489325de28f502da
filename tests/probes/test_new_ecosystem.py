"""A package manager that is added by one module and one entry works wherever the others do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import git_envhist

MODULE = '''
"""List the packages in `toys.lock`: a name and a version per line."""

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.fact_keys import key_of


def wants(directory):
    return True


def facts_of(directory, files, keyed):
    for line in (files[b"toys.lock"].data or b"").decode().splitlines():
        name, version = line.split()
        yield Fact("toy", key_of(directory or b"toys.lock", name), version, EnvPath(directory), auto=True)


def read_list(data):
    yield "?", "list"
    for name in data.decode().split():
        yield name, "asked="
'''

ENTRY = """
    "toy": FileProbe(
        "toy",
        PACKAGES,
        1,
        reads=(b"toys.lock",),
        directories=(b"toy_modules",),
        libraries=(b"toy_modules",),
        downloads=("toy_modules",),
        manifests=(b"toys.yaml",),
        lists=((b"toys.txt", "read_list"),),
        locks=(b"toys-lock.json",),
        records=(b".toy-installed",),
        interpreters=("toyrun",),
        engines=("toypack",),
        version_files=((b".toy-version", "toyrun"),),
        runtime=r"libtoy",
    ),
"""

CHECK = """
import os
import subprocess
from pathlib import Path

from git_envhist import EnvHistory
from git_envhist.diff.config_files import reader_of
from git_envhist.diff.used_machine_packages import assign_machine_roles
from git_envhist.diff.path_classes import class_of, split_machine_differences
from git_envhist.model import Change, ChangeSide, EntryKind, EnvPath, FactChange, ObjectId, Role
from git_envhist.probes.services import mask_command_line
from git_envhist.probes.table_facts import has_own_data
from git_envhist.restore.processes import INTERPRETER, package_of
from git_envhist.secrets.rules import is_package_directory


def write(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


subprocess.run(["git", "init", "-q", "."], check=True)
write("toys.txt", "ball")
write("toys.lock", "ball 1.0\\nstring 2.0\\n")
write(".toy-version", "3.1")
write("package.json", '{"engines": {"toypack": ">=3"}}')
write("toy_modules/ball/.toy-version", "9.9")
write("toy_modules/ball/data.csv", "a,b\\n1,2\\n")
history = EnvHistory.open(".", workers="here", one_command=True)
first = history.capture("before").snapshot
write("toys.lock", "ball 1.1\\nstring 2.1\\n")
write(".toy-version", "3.2")
write("package.json", '{"engines": {"toypack": ">=4"}}')
second = history.capture("after").snapshot

compared = history.diff(first.id, second.id)
changes = {(one.probe, one.key, one.before, one.after): one.role for one in compared.facts}
print(changes)
assert changes["toy", "toys.lock/ball", "1.0", "1.1"] is Role.DIRECT
assert changes["toy", "toys.lock/string", "2.0", "2.1"] is Role.TRANSITIVE
assert ("tools", "toyrun", "3.1", "3.2") in changes
assert ("tools", "toypack", ">=3", ">=4") in changes
assert len(changes) == 4

assert class_of(b"toy_modules/ball/x") == "packages"
assert is_package_directory(b"toy_modules/ball")
assert not has_own_data(b"toy_modules/ball")
assert reader_of(b"settings.json") is not None
assert reader_of(b"toys-lock.json") is None
assert INTERPRETER.fullmatch(b"toyrun3")
assert mask_command_line(["toyrun", "server.toy"], "/bin/toyrun", frozenset(), lambda word: word).name == "server.toy"
write("sub/toys.yaml", "")
top = os.fsencode(os.getcwd())
assert package_of(top + b"/sub/deeper", top) == top + b"/sub"
machine = FactChange("dpkg", "libtoy1", None, "1", EnvPath(b""), "dpkg", False, Role.DIRECT)
assert assign_machine_roles([machine], [], {"toy": ["ball"]})[0].role is Role.DIRECT
assert assign_machine_roles([machine], [], {"npm": ["ball"]})[0].role is Role.TRANSITIVE


def side(content):
    return ChangeSide(EnvPath(b"toy_modules/.toy-installed"), EntryKind.FILE, 0o644, ObjectId(bytes([content]) * 20))


apart = split_machine_differences([Change(side(1), side(2))], lambda directory: False)
assert [reason for reason, _ in apart.by_nature] == ["own paths"]
"""


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """Return a directory with a copy of the package in which the ecosystem `toy` was added."""
    package = tmp_path / "source" / "git_envhist"
    shutil.copytree(Path(git_envhist.__file__).parent, package)
    registry = package / "probes" / "__init__.py"
    before, line, after = registry.read_text().partition("ECOSYSTEMS: dict[str, FileProbe] = {\n")
    assert line
    registry.write_text(before + line + ENTRY + after)
    (package / "probes" / "toy.py").write_text(MODULE)
    return package.parent


def test_package_manager_is_added_by_one_module_and_one_entry(extended: Path, tmp_path: Path) -> None:
    place = tmp_path / "project"
    place.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
