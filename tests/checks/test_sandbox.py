"""Checks of older snapshots run in a sandbox at the original path, and are refused if they would use current files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_json import validate
from tests.support.oracle import listing
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, Result

NO_MOUNTS = {"GIT_ENVHIST_WITHOUT": "namespaces"}
MACHINE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def check(repo: Repo, *words: str, **more: object) -> Result:
    return repo.run("envlog", "verify", *words, **more)  # type: ignore[arg-type]


def told(repo: Repo, *words: str, **more: object) -> dict[str, object]:
    value = json.loads(check(repo, "--json", *words, **more).out)
    validate("checked", value)
    assert isinstance(value, dict)
    return value


def mounts_are_available(repo: Repo) -> bool:
    """Return whether mount namespaces are available."""
    return told(repo, "@", "--", "true")["ran_at"] == str(repo.path)


@pytest.fixture
def aged(repo: Repo) -> Repo:
    """Return a repository with snapshots `old` and `new`, and an ignored file that only exists now."""
    repo.write(".gitignore", "state\n")
    repo.commit("ignores")
    repo.write("state", "old\n")
    repo.run("envlog", "capture", "old", "--name", "old-one", check=True)
    repo.write("state", "new\n")
    repo.write("tool/bin/show", f"#!/bin/sh\ncat {repo.path}/state\n", mode=0o755)
    repo.run("envlog", "capture", "new", "--name", "new-one", check=True)
    repo.write("state", "alive\n")
    return repo


@pytest.mark.parametrize(
    ("command", "status"), [("true", 0), ("false", 1), ("exit 125", 125), ("no-such", 125)]
)
def test_exit_status_is_that_of_the_check(aged: Repo, command: str, status: int) -> None:
    assert check(aged, "--", command).status == status
    assert check(aged, "old-one", "--", command).status == status


def test_changed_environment_is_captured_and_checked(aged: Repo) -> None:
    assert check(aged, "now", "--", "cat", "state").err == "alive\n"
    assert aged.run("envlog", "--format=%s").out.count("\n") == 3
    assert check(aged, "--", "grep", "-q", "alive", "state").out.startswith("✓ grep -q alive state (")
    assert aged.run("envlog", "--format=%s").out.count("\n") == 3
    newest = json.loads(aged.run("envlog", "show", "--json").out)
    assert [verdict["command"] for verdict in newest["verdicts"]] == ["cat state", "grep -q alive state"]


def test_older_snapshot_is_checked_without_touching_the_environment(aged: Repo) -> None:
    before = listing(aged.path)
    done = check(aged, "old-one", "--", "cat state; echo changed > state; touch more")
    assert (done.status, done.err) == (0, "old\n")
    assert listing(aged.path) == before
    assert "✓" in aged.run("envlog", "--grep=^old$").out
    assert not os.listdir(aged.path / ".git/envhist/aside")


def test_sandbox_is_seen_at_the_original_path(aged: Repo) -> None:
    if not mounts_are_available(aged):
        pytest.skip("mount namespaces are not available")
    done = check(
        aged,
        "new-one",
        "--",
        f"pwd; cat {aged.path}/state; tool/bin/show; git status --short; git log --format=%s",
    )
    assert done.err.splitlines() == [str(aged.path), "new", "new", "?? tool/", "ignores", "first commit"]
    # The sandbox has its own index and HEAD.
    check(aged, "new-one", "--", "git add -A && git commit -qm elsewhere")
    assert aged.git("log", "-1", "--format=%s") == "ignores"
    assert aged.git("diff", "--cached", "--name-only") == ""


def test_ordinary_user_has_a_sandbox(aged: Repo) -> None:
    if not mounts_are_available(aged):
        pytest.skip("mount namespaces are not available")
    user = as_ordinary_user()
    done = check(aged, "new-one", "--", "tool/bin/show", prefix=user)
    assert (done.status, done.err) == (0, "new\n")


def test_paths_are_rewritten_when_mounts_are_not_available(aged: Repo) -> None:
    found = told(aged, "new-one", "--", "tool/bin/show; pwd", env=NO_MOUNTS)
    verdict = found["verify"]
    assert isinstance(verdict, dict)
    assert (verdict["status"], verdict["output_tail"].splitlines()[0]) == ("pass", "new")
    assert found["ran_at"] != str(aged.path)
    assert not os.path.exists(str(found["ran_at"]))


def test_remaining_reference_to_the_environment_is_an_error_and_never_a_pass(aged: Repo) -> None:
    aged.write("tool/program", b"\x7fELF\0" + os.fsencode(aged.path) + b"/lib\0")
    aged.run("envlog", "capture", "binary", "--name", "binary-one", check=True)
    found = told(aged, "binary-one", "--", "true", env=NO_MOUNTS)
    assert (found["ran_at"], found["verify"]["status"]) == (None, "error")  # type: ignore[index]
    done = check(aged, "binary-one", "--", "true", env=NO_MOUNTS)
    assert done.status == 125
    assert "the check would run files of the living environment, named in 'tool/program'" in done.out


@pytest.fixture(scope="module")
def with_venv(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a project with a package in a virtual environment, with a console script and `activate` as pip writes
    them."""
    from tests.support.repository import make_repo

    repo = make_repo(tmp_path_factory.mktemp("venv") / "repo")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", ".venv"],
        cwd=repo.path,
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("this Python makes no virtual environments")
    site = next((repo.path / ".venv/lib").glob("python3*")) / "site-packages"
    version = site / "greeter.py"
    script = f"#!{repo.path}/.venv/bin/python\nimport greeter, sys\nprint(greeter.VERSION, sys.prefix)\n"
    repo.write(".venv/bin/greet", script, mode=0o755)
    for number in (1, 2):
        version.write_text(f"VERSION = {number}\n" + "#" * number)
        repo.run("envlog", "capture", f"version {number}", "--name", f"version-{number}", check=True)
    version.write_text("VERSION = 3  # alive\n")
    return repo


@pytest.mark.parametrize("env", [{}, NO_MOUNTS], ids=["mounted", "relocated"])
def test_virtual_environment_runs_its_files_of_that_time(with_venv: Repo, env: dict[str, str]) -> None:
    ways = (
        ".venv/bin/greet",
        ". .venv/bin/activate && greet && python -c 'import greeter; print(greeter.VERSION)'",
        "$PWD/.venv/bin/python -c 'import greeter; print(greeter.VERSION)'",
    )
    for revision in ("version-1", "version-2"):
        done = check(with_venv, revision, "--", " && ".join(ways), env=env)
        versions = [line.split()[0] for line in done.err.splitlines()]
        # If it cannot be judged, it does not run; it never passes because of present files.
        assert (done.status, versions) in ((0, [revision[-1]] * 4), (125, [])), done.err + done.out


def test_snapshot_with_an_additional_root_cannot_be_judged(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    repo.git("config", "envhist.root.beside", str(tmp_path / "beside"))
    (tmp_path / "beside/file").write_text("x")
    repo.run("envlog", "capture", "x", check=True)
    done = check(repo, "@", "--", "true")
    assert done.status == 125
    assert "additional root 'beside://'" in done.out


def test_failure_of_an_incomplete_snapshot_is_an_error(repo: Repo) -> None:
    user = as_ordinary_user()
    repo.write("closed", "x", mode=0)
    repo.run("envlog", "capture", "partial", check=True, prefix=user)
    (repo.path / "closed").chmod(0o644)
    assert check(repo, "@", "--", "cat closed", prefix=user).status == 125
    assert check(repo, "@", "--", "true", prefix=user).status == 0


def test_unsigned_snapshot_is_not_run(aged: Repo) -> None:
    tip = aged.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/envhist/heads").split()
    body = aged.git("cat-file", "commit", tip[0]).replace("\n\nnew", "\n\nforged", 1)
    forged = aged.git("hash-object", "-t", "commit", "-w", "--stdin", input=body + "\n")
    aged.git("update-ref", tip[1], forged)
    done = check(aged, "@", "--", "touch /tmp/never-run-by-a-test")
    assert done.status == 3
    assert "is unsigned" in done.err
    assert not os.path.exists("/tmp/never-run-by-a-test")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_killed_check_leaves_nothing_after_the_next(aged: Repo, number: int) -> None:
    words = ["git-envlog", "verify", "old-one", "--", "echo begun; sleep 1000"]
    with subprocess.Popen(words, cwd=aged.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == b"begun\n"
        running.send_signal(number)
        running.stderr.close()
        running.wait()
    check(aged, "old-one", "--", "true")
    places = [aged.path / ".git/envhist/aside", Path(os.environ["XDG_CACHE_HOME"]) / "git-envhist/aside"]
    assert [os.listdir(place) for place in places if place.exists()] in ([[]], [[], []])
    mounted = Path("/proc/self/mounts")
    assert not mounted.exists() or str(aged.path) not in mounted.read_text()


def test_plain_directory_is_checked(tmp_path: Path, repo: Repo) -> None:
    plain = Repo(tmp_path / "plain", repo.env)
    plain.path.mkdir()
    plain.run("envlog", "init", check=True)
    for text in ("one", "two"):
        plain.write("file", text)
        plain.run("envlog", "capture", text, check=True)
    done = check(plain, "@~1", "--", "cat file")
    assert (done.status, done.err) == (0, "one")
    assert check(plain, "@~1", "--", "cat file", env=NO_MOUNTS).err == "one"


def test_command_is_the_configured_one_or_the_last_one_typed(aged: Repo) -> None:
    assert check(aged, "old-one").status == 129
    check(aged, "old-one", "--", "echo typed here")
    assert check(aged, "old-one").err == "typed here\n"
    aged.git("config", "envhist.verify", "echo configured")
    assert check(aged, "old-one").err == "configured\n"
    aged.git("config", "--unset", "envhist.verify")
    os.unlink(aged.path / ".git/envhist/checks")
    done = check(aged, "old-one")
    assert done.status == 129
    assert "no check given" in done.err


def test_error_does_not_replace_the_pass_of_an_older_snapshot(aged: Repo) -> None:
    aged.write("tool/program", b"\x7fELF\0" + os.fsencode(aged.path) + b"/lib\0")
    first = aged.run(
        "envlog", "capture", "it works", "--verify", "true", "--porcelain", check=True
    ).out.strip()
    aged.write("app.py", b"later")
    aged.run("envlog", "capture", "later", check=True)
    assert check(aged, first, "--", "true", env=NO_MOUNTS).status == 125
    assert aged.run("envlog", "-1", "--format=%H", "good", check=True).out.strip() == first
    listed = aged.run("envlog", "--verdict=pass", "--format=%H", check=True).out.split()
    assert first in listed
    line = next(
        line for line in aged.run("envlog", check=True).out.splitlines() if line.startswith(first[:7])
    )
    assert "✓ it works" in line
    assert "the last check gave no result (true: did not run)" in line


def test_binary_data_with_the_path_is_no_error(aged: Repo) -> None:
    named = os.fsencode(aged.path)
    aged.write(".next/cache/webpack/0.pack", b"\0pack\0" + named + b"/src/app.js\0")
    aged.write("node_modules/.vite/deps/meta.bin", b"\0" + named + b"\0")
    aged.run("envlog", "capture", "caches", "--name", "cached-one", check=True)
    found = told(aged, "cached-one", "--", "true", env=NO_MOUNTS)
    assert found["verify"]["status"] == "pass"  # type: ignore[index]
