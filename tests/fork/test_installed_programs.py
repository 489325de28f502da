"""Installed programs run in a fork and use the fork's files: a real virtual environment, a real node package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork.test_fork import beside, fork
from tests.support.needs import require
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

# Package indexes are configured by the machine, as before the tests were isolated from it.
MACHINE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "greeter"
version = "1.0"
"""
# A minimal build backend, so that nothing must be downloaded.
BACKEND = """\
import os, zipfile
INFO = "greeter-1.0.dist-info"
def _wheel(directory, files):
    name = "greeter-1.0-py3-none-any.whl"
    files = {**files, f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: greeter\\nVersion: 1.0\\n",
             f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nGenerator: b\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
             f"{INFO}/entry_points.txt": "[console_scripts]\\ngreet = greeter:main\\n"}
    files[f"{INFO}/RECORD"] = "".join(f"{path},,\\n" for path in [*files, f"{INFO}/RECORD"])
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
def build_wheel(directory, config_settings=None, metadata_directory=None):
    return _wheel(directory, {"greeter.py": open("greeter.py").read()})
def build_editable(directory, config_settings=None, metadata_directory=None):
    return _wheel(directory, {"greeter.pth": os.path.abspath("lib") + "\\n"})
"""
SAY = "import sys\ndef main():\n    print(sys.prefix, __file__)\n"


def run(place: Path, *words: str, **more: str) -> str:
    # Bytecode that a program writes would be an additional change.
    environment = {**MACHINE, "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def with_venv(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a project installed as editable in a virtual environment, by that environment's own pip."""
    above = tmp_path_factory.mktemp("venv")
    repo = make_repo(above / "repo")
    repo.write("pyproject.toml", PROJECT)
    repo.write("backend.py", BACKEND)
    repo.write("lib/greeter.py", SAY)
    repo.write(".gitignore", ".venv/\n")
    repo.commit("a project")
    made = subprocess.run(
        [sys.executable, "-m", "venv", ".venv"], cwd=repo.path, capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("this Python makes no virtual environments with pip")
    install = (".venv/bin/pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-e", ".")
    run(repo.path, *install, PIP_CACHE_DIR=str(above / "cache"))
    repo.run("envlog", "capture", "installed", check=True)
    return repo


@pytest.mark.full
def test_relocated_virtual_environment_runs_its_own_files(with_venv: Repo) -> None:
    before = listing(with_venv.path)
    made = fork(with_venv, "relocated", "--relocate")
    venv, own = str(made.path / ".venv"), str(made.path)
    assert run(made.path, ".venv/bin/python", "-c", "import sys; print(sys.prefix)") == venv + "\n"
    assert run(made.path, ".venv/bin/greet") == f"{venv} {own}/lib/greeter.py\n"
    assert venv in run(made.path, ".venv/bin/pip", "--version")
    output = json.loads(run(made.path, ".venv/bin/pip", "list", "--format=json", "--editable"))
    assert [(one["name"], one["editable_project_location"]) for one in output] == [("greeter", own)]
    assert run(made.path, "sh", "-c", ". .venv/bin/activate && command -v greet") == f"{venv}/bin/greet\n"
    # Packages uninstalled in the fork stay in the original.
    run(made.path, ".venv/bin/pip", "uninstall", "-q", "-y", "greeter")
    assert listing(with_venv.path) == before
    text = subprocess.run(
        ["grep", "-rlIF", "--exclude-dir=__pycache__", str(with_venv.path) + "/", made.path / ".venv"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert text.stdout == b""


@pytest.mark.full
def test_relocated_fork_is_restored_and_runs_the_original_files(with_venv: Repo) -> None:
    before = listing(with_venv.path)
    made = fork(with_venv, "adopted", "--relocate")
    made.write("new", b"better")
    line = json.loads(made.run("envlog", "capture", "--json", "better", check=True).out)["snapshot"][
        "timeline"
    ]
    done = with_venv.run("envrestore", "--relocate", line)
    assert (done.status, "still names" in done.err) == (0, False), done.err
    assert "\nrelocated " in done.out
    # The snapshot equals the working tree.
    assert with_venv.run("envdiff", "--name-status", "@", "now", check=True).out == ""
    venv, own = str(with_venv.path / ".venv"), str(with_venv.path)
    assert run(with_venv.path, ".venv/bin/python", "-c", "import sys; print(sys.prefix)") == venv + "\n"
    assert run(with_venv.path, ".venv/bin/greet") == f"{venv} {own}/lib/greeter.py\n"
    assert venv in run(with_venv.path, ".venv/bin/pip", "--version")
    named = subprocess.run(
        ["grep", "-rlIF", f"{made.path}/", with_venv.path / ".venv"], capture_output=True, check=False
    )
    assert named.stdout == b""
    # One undo reverts all changes.
    with_venv.run("envrestore", "--undo", check=True)
    assert listing(with_venv.path) == before


def test_removed_fork_cannot_be_relocated(repo: Repo) -> None:
    repo.write("bin/tool", f"#!{repo.path}/python\n", mode=0o755)
    repo.run("envlog", "capture", "x", check=True)
    made = fork(repo, "made", "--relocate")
    made.write("new", b"")
    line = json.loads(made.run("envlog", "capture", "--json", "x", check=True).out)["snapshot"]["timeline"]
    repo.git("worktree", "remove", "--force", str(made.path))
    before = listing(repo.path)
    done = repo.run("envrestore", "--relocate", line)
    assert (done.status, "is unknown" in done.err) == (3, True)
    assert listing(repo.path) == before


@pytest.mark.full
def test_fork_without_relocation_reports_references_to_the_original(with_venv: Repo) -> None:
    output = json.loads(with_venv.run("envlog", "fork", "--json", "../made", check=True).out)
    found = {one["path"].rpartition("/")[2] for one in output["pointing"]}
    assert {"pyvenv.cfg", "activate", "pip", "greet", "greeter.pth", "direct_url.json"} <= found
    assert output["relocated"] == []
    # The script runs the original's files, so this had to be reported.
    assert run(with_venv.path.parent / "made", ".venv/bin/greet").startswith(str(with_venv.path) + "/.venv ")


@pytest.mark.full
def test_script_with_a_too_long_first_line_still_runs(with_venv: Repo) -> None:
    deep = "/".join(["d" * 100] * 2)
    made = fork(with_venv, deep, "--relocate")
    assert run(made.path, ".venv/bin/greet").startswith(f"{made.path}/.venv ")
    assert str(made.path) in run(made.path, ".venv/bin/pip", "--version")


@pytest.mark.full
def test_relocated_node_package_runs_its_own_files(repo: Repo, tmp_path: Path) -> None:
    npm = require("npm", MACHINE.get("PATH"))
    repo.write("tool/package.json", '{"name": "tool", "version": "1.0.0", "bin": {"tool": "run.js"}}\n')
    repo.write("tool/run.js", "#!/usr/bin/env node\nconsole.log(__filename)\n", mode=0o755)
    scripts = {"where": "tool", "linked": "linked"}
    package = {"name": "work", "version": "1.0.0", "private": True, "scripts": scripts}
    repo.write("package.json", json.dumps({**package, "dependencies": {"tool": "file:./tool"}}))
    repo.write(".gitignore", "node_modules/\n")
    repo.commit("a package")
    cache = {"npm_config_cache": str(tmp_path / "cache"), "npm_config_update_notifier": "false"}
    run(repo.path, npm, "install", "--offline", "--no-audit", "--no-fund", **cache)
    # Other package managers link their programs like this.
    (repo.path / "node_modules/.bin/linked").symlink_to(repo.path / "tool/run.js")
    repo.run("envlog", "capture", "installed", check=True)
    made = fork(repo, "made", "--relocate")
    for script in scripts:
        said = run(made.path, npm, "run", "--silent", script, **cache)
        assert said == f"{made.path}/tool/run.js\n"
    assert os.readlink(made.path / "node_modules/.bin/linked") == f"{made.path}/tool/run.js"


def test_rewritten_file_keeps_mode_hard_links_and_directory_time(repo: Repo) -> None:
    repo.write("bin/tool", f"#!{repo.path}/python\n", mode=0o555)
    os.link(repo.path / "bin/tool", repo.path / "bin/twin")
    repo.write("bin/program", b"\x7fELF\0" + os.fsencode(repo.path))
    repo.write("bin/zipped", b"#!%b/python\nPK\3\4\0%b" % ((os.fsencode(repo.path),) * 2))
    repo.write("bin/tracked", f"{repo.path}\n")
    repo.git("add", "bin/tracked")
    repo.git("commit", "-qm", "code that names a place")
    (repo.path / "bin/link").symlink_to(repo.path / "app.py")
    repo.write("bin/sibling", f"{repo.path}-2/x\n")
    repo.run("envlog", "capture", "x", check=True)
    before = listing(repo.path)
    output = json.loads(repo.run("envlog", "fork", "--json", "--relocate", "../made", check=True).out)
    made = Repo(repo.path.parent / "made", repo.env)
    assert {one["path"] for one in output["relocated"]} >= {"bin/link", "bin/zipped"}
    assert [(one["path"], one["what"]) for one in output["pointing"]] == [("bin/tracked", "tracked by HEAD")]
    after, new = listing(made.path), os.fsencode(made.path)
    assert made.read("bin/tool") == made.read("bin/twin") == b"#!%b/python\n" % new
    assert (after[b"bin/tool"].mode, after[b"bin/tool"].linked) == (0o555, (b"bin/twin",))
    assert made.read("bin/zipped") == b"#!%b/python\nPK\3\4\0%b" % (new, os.fsencode(repo.path))
    assert os.readlink(made.path / "bin/link") == f"{made.path}/app.py"
    same = (b"bin", b"bin/program", b"bin/tracked", b"bin/sibling")
    assert [after[path] for path in same] == [before[path] for path in same]
    assert made.git("status", "--porcelain") == repo.git("status", "--porcelain")


def test_path_that_scripts_must_quote_is_refused_only_for_relocation(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", check=True)
    done = repo.run("envlog", "fork", "--relocate", "../my fork")
    assert (done.status, "--relocate" in done.err) == (3, True)
    assert not (repo.path.parent / "my fork").exists()
    repo.run("envlog", "fork", "../my fork", check=True)


def test_fork_of_a_fork_refers_to_the_first(repo: Repo) -> None:
    repo.write("bin/tool", f"#!{repo.path}/python\n", mode=0o755)
    repo.run("envlog", "capture", "x", check=True)
    made = fork(repo, "made")
    fork(made, "again", "--relocate")
    assert (repo.path.parent / "again/bin/tool").read_text() == f"#!{repo.path.parent}/again/python\n"


def test_restore_from_a_relocated_fork_warns_about_its_paths(repo: Repo) -> None:
    repo.write("bin/tool", f"#!{repo.path}/python\n", mode=0o755)
    repo.write("plain", b"1")
    repo.run("envlog", "capture", "x", check=True)
    made = fork(repo, "made", "--relocate")
    made.write("plain", b"2")
    line = json.loads(made.run("envlog", "capture", "--json", "changed", check=True).out)["snapshot"][
        "timeline"
    ]
    done = repo.run("envrestore", line, "--", ".", ":!bin", check=True)
    assert (repo.read("plain"), "names" in done.err) == (b"2", False)
    done = repo.run("envrestore", line, check=True)
    assert f"still contain '{made.path}': 'bin/tool'" in done.err
    # The files are restored already; rewriting needs another restore.
    assert (
        "nothing was restored, so nothing was rewritten"
        in repo.run("envrestore", line, "--relocate", check=True).err
    )
    assert repo.run("envrestore", line, check=True).err == ""


def test_original_path_is_read_from_restored_files(repo: Repo) -> None:
    there = repo.path.parent / "there.git"
    repo.git("init", "-q", "--bare", str(there))
    repo.git("remote", "add", "origin", str(there))
    repo.git("push", "-q", "origin", "HEAD")
    script = 'VIRTUAL_ENV="{}/env"\nexport VIRTUAL_ENV\n'
    repo.write("env/bin/activate", script.format(repo.path))
    repo.write("env/bin/tool", f"#!{repo.path}/env/bin/python\n", mode=0o755)
    repo.run("envlog", "capture", "x", check=True)
    repo.run("envlog", "push", "--yes", check=True)
    repo.git("clone", "-q", str(there), "../clone")
    clone = beside(repo, "clone")
    key = repo.run("envlog", "key", "export", check=True).out
    clone.run("envlog", "key", "import", input=key, check=True)
    clone.run("envlog", "fetch", check=True)
    [moment] = clone.run("envlog", "--all", "--format=%H", check=True).out.split()
    done = clone.run("envrestore", moment, check=True)
    assert f"still contain '{repo.path}': 'env/bin/activate', 'env/bin/tool'" in done.err
    clone.run("envrestore", "--undo", check=True)
    done = clone.run("envrestore", moment, "--relocate", check=True)
    assert "relocated 2 paths\n" in done.out
    assert "still names" not in done.err
    assert clone.read("env/bin/activate").decode() == script.format(clone.path)


def test_nested_linked_worktrees_are_reported_and_copied(repo: Repo) -> None:
    inner = make_repo(repo.path / "vendor/lib")
    inner.git("worktree", "add", "-q", "../beside")
    repo.run("envlog", "capture", "x", check=True)
    registered, pointer = "vendor/lib/.git/worktrees/beside/gitdir", "vendor/beside/.git"
    done = repo.run("envlog", "fork", "../told", check=True)
    assert all(f"    {path}: " in done.out for path in (registered, pointer))
    command = next(line for line in done.out.splitlines() if line.startswith("to replace them")).partition(
        ": "
    )[2]
    before = listing(repo.path)
    repo.execute("sh", "-ec", command)
    made = beside(repo, "told")
    assert str(repo.path) + "/" not in made.read(registered).decode() + made.read(pointer).decode()
    assert Repo(made.path / "vendor/beside", repo.env).git("status", "--porcelain") == ""
    Repo(made.path / "vendor/lib", repo.env).git("worktree", "remove", "--force", "../beside")
    assert listing(repo.path) == before
