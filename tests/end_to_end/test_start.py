"""Count the modules that quick commands load and the processes that they start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.source import CHECKOUT
from tests.support.repository import Repo

SCRIPT = """
import re, sys
import re._compiler as engine
made, compiled = engine.compile, []
engine.compile = lambda *words: (compiled.append(words[0]), made(*words))[1]
from git_envhist.cli import main
status = main.run_program(sys.argv[2], sys.argv[3:])
with open(sys.argv[1], "w") as told:
    print(status, len(compiled), *sys.modules, file=told)
"""
# Each of these modules takes longer to load than a quick command runs.
NEVER = {
    "click",
    "dataclasses",
    "inspect",
    "rich",
    "shutil",
    "subprocess",
    "tempfile",
    "dulwich",
    "pathspec",
    "zstandard",
}


class Run:
    """The output, processes and modules of one run."""

    def __init__(self, repo: Repo, tmp_path: Path, program: str, *words: str) -> None:
        told, trace = tmp_path / "told", tmp_path / "trace"
        trace.write_text("")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(told), program, *words],
            cwd=repo.path,
            # git writes one such line for each of its processes.
            env={**repo.env, "PYTHONPATH": str(CHECKOUT), "GIT_TRACE2_EVENT": str(trace)},
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        status, patterns, *modules = told.read_text().split()
        assert status == "0", done.stderr
        self.patterns = int(patterns)
        self.modules = set(modules)
        self.children = trace.read_text().count('"event":"start"')

    @property
    def ours(self) -> set[str]:
        return {name for name in self.modules if name.startswith("git_envhist.")}


@pytest.fixture
def captured(repo: Repo, tmp_path: Path) -> Repo:
    for number in range(3):
        repo.write("app.py", f"print({number})\n")
        repo.run("envlog", "capture", "-m", f"moment {number}", check=True)
    return repo


def test_list_starts_two_git_processes_and_loads_no_heavy_module(captured: Repo, tmp_path: Path) -> None:
    run = Run(captured, tmp_path, "git-envlog", "-n2")
    # git reads the configuration and the repository, then the log.
    assert run.children == 2
    assert not run.modules & NEVER
    assert not {name for name in run.ours if ".capture." in name}
    assert {"git_envhist.diff.compare_snapshots", "git_envhist.snapshots.manifest"}.isdisjoint(run.ours)
    assert run.patterns <= 20


def test_list_by_paths_starts_the_same_processes_for_any_length(captured: Repo, tmp_path: Path) -> None:
    before = Run(captured, tmp_path, "git-envlog", "--", "app.py").children
    for number in range(3):
        captured.write("app.py", f"print('again', {number})\n")
        captured.run("envlog", "capture", check=True)
    assert Run(captured, tmp_path, "git-envlog", "--", "app.py").children == before


def test_diff_compares_the_trees_and_reads_only_differences(captured: Repo, tmp_path: Path) -> None:
    run = Run(captured, tmp_path, "git-envdiff", "--name-status", "@~1", "@")
    # The processes of a list and one that compares the trees; changed files are read from packs in this process.
    assert run.children <= 3
    assert not run.modules & NEVER
    assert not {name for name in run.ours if ".capture." in name}
    assert run.patterns <= 45


def test_list_of_paths_reads_no_manifest_when_whole_files_were_replaced(
    captured: Repo, tmp_path: Path
) -> None:
    captured.write("app.py.new", "print('new')\n")
    (captured.path / "app.py.new").rename(captured.path / "app.py")
    captured.run("envlog", "capture", check=True)
    run = Run(captured, tmp_path, "git-envdiff", "--name-status", "@~1", "@")
    # The processes of a list, and one that compares the trees.
    assert run.children <= 3
    captured.path.joinpath("app.py").chmod(0o600)
    captured.run("envlog", "capture", check=True)
    assert captured.run("envdiff", "--name-status", "@~1", "@").stdout == b"M\tapp.py\n"


def test_diff_by_full_ids_starts_no_more_processes_than_one_of_the_newest(
    captured: Repo, tmp_path: Path
) -> None:
    listed = captured.run("envlog", "-n2", "--format=%H", check=True).stdout.decode("ascii").split()
    newest = Run(captured, tmp_path, "git-envdiff", "--name-status", "@~1", "@").children
    assert Run(captured, tmp_path, "git-envdiff", "--name-status", listed[1], listed[0]).children <= newest


def test_range_starts_no_more_processes_than_its_two_ends(captured: Repo, tmp_path: Path) -> None:
    two = Run(captured, tmp_path, "git-envdiff", "--name-status", "@~1", "@").children
    assert Run(captured, tmp_path, "git-envdiff", "--name-status", "@~1..@").children == two


def test_capture_loads_third_party_libraries_for_packing_only(captured: Repo, tmp_path: Path) -> None:
    captured.run("envlog", "capture", "-m", "once more", check=True)
    run = Run(captured, tmp_path, "git-envlog", "capture", "--if-changed")
    assert not run.modules & (NEVER - {"zstandard"})
    assert run.patterns <= 50
    assert run.children <= 9
