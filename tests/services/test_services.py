"""The state of services, dumped and loaded by configured commands; small shell commands replace a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from git_envhist.lazy import replace
from git_envhist.restore.journal import write_journal
from git_envhist.restore.options import STOPPED
from git_envhist.service_dumps import ServiceCommandContext, run, run_into
from tests.restore.engine import Engine
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

STATE = b"the rows that a server holds, " * 40_000


class Served:
    """A repository and a "server": a file that its commands read and write, with a log of their calls."""

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        self.state = repo.path.parent / "state"
        self.said = repo.path.parent / "said"
        self.configure("dump", f"cat '{self.state}'")
        self.configure("restore", f"echo restore >> '{self.said}'; cat > '{self.state}'")
        self.configure("stop", f"echo stop >> '{self.said}'")
        self.configure("start", f"echo start >> '{self.said}'")

    def configure(self, verb: str, command: str) -> None:
        self.repo.git("config", f"envhist.service.kv.{verb}", command)

    def capture(self, intent: str, state: bytes) -> str:
        self.state.write_bytes(state)
        return self.repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()

    @property
    def steps(self) -> list[str]:
        return self.said.read_text().split() if self.said.exists() else []


@pytest.fixture
def served(repo: Repo) -> Served:
    return Served(repo)


def test_restore_loads_the_state_and_undo_reverts_it(served: Served) -> None:
    repo = served.repo
    first = served.capture("one", STATE + b"1")
    repo.write("app.py", b"two")
    served.state.write_bytes(STATE + b"2")
    told = repo.run("envrestore", "-n", "--services", first, check=True).out
    assert "service kv: stop, restore, start\n" in told
    assert (served.steps, served.state.read_bytes()) == ([], STATE + b"2")
    done = repo.run("envrestore", "--services", first, check=True).out
    assert served.state.read_bytes() == STATE + b"1"
    assert repo.read("app.py") != b"two"
    assert served.steps == ["stop", "restore", "start"]
    assert f"services: kv stopped; kv restored from {first[:7]}; kv started\n" in done
    assert done.endswith("to undo: git envrestore --undo --services\n")
    for verb, app, state in (("--undo", b"two", b"2"), ("--redo", b"print('hello')\n", b"1")):
        repo.run("envrestore", verb, "--services", check=True)
        assert (repo.read("app.py"), served.state.read_bytes()) == (app, STATE + state)
    assert git_fsck(repo.path) == ""


def test_undo_and_redo_restore_services_and_show_lists_them(served: Served) -> None:
    repo = served.repo
    first = served.capture("one", STATE + b"1")
    repo.write("app.py", b"two")
    served.state.write_bytes(STATE + b"2")
    repo.run("envrestore", "--services", first, check=True)
    for verb, state in (("undo", b"2"), ("redo", b"1")):
        done = repo.run("envlog", verb, "--services", check=True)
        assert served.state.read_bytes() == STATE + state
        assert "kv restored" in done.out
    assert "\nServices:  kv\n" in repo.run("envlog", "show", first, check=True).out
    assert json.loads(repo.run("envlog", "show", "--json", first, check=True).out)["services"] == ["kv"]
    repo.git("config", "--remove-section", "envhist.service.kv")
    bare = repo.run("envlog", "capture", "--porcelain", "bare", check=True).out.strip()
    assert "Services:" not in repo.run("envlog", "show", bare, check=True).out
    assert json.loads(repo.run("envlog", "show", "--json", bare, check=True).out)["services"] == []


def test_restore_names_the_safety_snapshot_when_no_file_differs(served: Served) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    served.state.write_bytes(b"2")
    done = json.loads(repo.run("envrestore", "--json", "--services", first, check=True).out)
    assert served.state.read_bytes() == b"1"
    assert done["services"] == ["kv stopped", f"kv restored from {first[:7]}", "kv started"]
    assert done["undo"] == f"git envrestore --services {done['safety'][:7]}"
    repo.run(*done["undo"].removeprefix("git ").split(), check=True)
    assert served.state.read_bytes() == b"2"


def test_plan_without_files_prints_an_undo_that_restores_the_services(served: Served) -> None:
    first = served.capture("one", b"1")
    served.state.write_bytes(b"2")
    planned = served.repo.run("envrestore", "-n", "--services", first, check=True).out
    assert planned.endswith("to undo: git envrestore --services @~1\n")
    served.repo.run("envrestore", "--services", first, check=True)
    served.repo.run("envrestore", "--services", "@~1", check=True)
    assert served.state.read_bytes() == b"2"


def test_restore_of_services_is_not_listed_as_nothing_changed(served: Served) -> None:
    first = served.capture("one", b"1")
    served.repo.run("envrestore", "--services", first, check=True)
    assert served.repo.run("envlog", "-1", "--format=%s|%(story)").out == (
        f"restore of {first[:7]} (with services)|no file changed\n"
    )


def test_restore_without_option_changes_no_service(served: Served) -> None:
    first = served.capture("one", b"1")
    served.repo.write("app.py", b"two")
    served.state.write_bytes(b"2")
    served.repo.run("envrestore", first, check=True)
    assert (served.state.read_bytes(), served.steps) == (b"2", [])


def test_changed_dump_alone_makes_no_automatic_snapshot(served: Served) -> None:
    # Real dumps end with the time, e.g. those of mysqldump.
    served.configure("dump", f"cat '{served.state}'; date +%s.%N")
    served.capture("one", STATE)
    told = served.repo.run("envlog", "capture", "--if-changed", "--json", check=True).out
    assert json.loads(told)["snapshot"] is None
    told = served.repo.run("envlog", "capture", "--if-changed", check=True).out
    assert "\n services were not compared; " in told
    served.repo.write("app.py", b"two")
    told = served.repo.run("envlog", "capture", "--if-changed", "--json", check=True).out
    assert json.loads(told)["snapshot"] is not None


def test_service_state_is_sealed_and_shares_unchanged_chunks(served: Served) -> None:
    repo = served.repo
    state = os.urandom(3 << 20)
    served.capture("one", state)
    before = _stored(repo)
    served.capture("two", state[: 1 << 20] + b"a little more" + state[1 << 20 :])
    assert _stored(repo) - before < 1 << 20
    served.capture("three", STATE)
    everything = repo.run_git("cat-file", "--batch", "--batch-all-objects").stdout
    assert b"rows that a server" not in everything
    assert state[:64] not in everything
    assert git_fsck(repo.path) == ""


def _stored(repo: Repo) -> int:
    return sum(path.stat().st_size for path in (repo.path / ".git/objects/pack").glob("*.pack"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo 'no such database' >&2; exit 3", "it exited with status 3: no such database"),
        ("kill -9 $$", "it was killed by signal 9"),
        ("true", "its dump is empty"),
    ],
)
def test_failed_dump_gives_a_warning_and_the_snapshot_is_taken(
    served: Served, command: str, why: str
) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    served.configure("dump", command)
    repo.write("app.py", b"two")
    done = repo.run("envlog", "capture", "two", check=True)
    assert f"the state of service 'kv' is not stored: {why}" in done.err
    assert repo.git("log", "-1", "--format=%s", _tip(repo)) == "two"
    # A state that cannot be saved is not replaced.
    refused = repo.run("envrestore", "--services", first)
    assert (refused.status, repo.read("app.py"), served.steps) == (3, b"two", [])
    assert why in refused.err


@pytest.mark.parametrize("words", [(), ("-n",)])
def test_service_without_dump_command_is_not_replaced(served: Served, words: tuple[str, ...]) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    repo.git("config", "--unset", "envhist.service.kv.dump")
    repo.write("app.py", b"two")
    served.state.write_bytes(b"2")
    refused = repo.run("envrestore", "--services", *words, first)
    assert (refused.status, served.steps) == (3, [])
    assert (repo.read("app.py"), served.state.read_bytes()) == (b"two", b"2")
    assert "git config envhist.service.kv.dump" in refused.err


def _tip(repo: Repo) -> str:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")


def test_restore_is_refused_before_any_service_is_stopped(served: Served) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    assert repo.run("envrestore", "--services", "absent").status == 4
    assert repo.run("envrestore", "--services", "--to", "../there", first).status == 129
    other = Repo(repo.path, {**repo.env, "GIT_CONFIG_COUNT": "0"})
    for place in (repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        for key in place.iterdir():
            key.unlink()
    repo.write("app.py", b"two")
    refused = other.run("envrestore", "--services", "--allow-unsigned", first)
    assert (refused.status, served.steps) == (3, [])
    assert "services cannot be restored" in refused.err


def test_restore_ends_when_a_service_does_not_stop_and_restarts_the_others(served: Served) -> None:
    repo = served.repo
    repo.git("config", "envhist.service.zz.stop", "exit 7")
    first = served.capture("one", b"1")
    repo.write("app.py", b"two")
    refused = repo.run("envrestore", "--services", first)
    assert (refused.status, repo.read("app.py"), served.state.read_bytes()) == (3, b"two", b"1")
    assert "'zz' did not stop: it exited with status 7" in refused.err
    assert served.steps == ["stop", "start"]


@pytest.mark.parametrize("verb", ["restore", "start"])
def test_failed_service_command_has_its_own_exit_status(served: Served, verb: str) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    repo.write("app.py", b"two")
    served.configure(verb, "echo 'disk is full' >&2; exit 1")
    done = repo.run("envrestore", "--services", first)
    assert done.status == 5
    assert "not restored exactly: 'service kv'" in done.err
    assert "disk is full" in done.err
    assert repo.read("app.py") != b"two"
    assert served.steps == ["stop", "start" if verb == "restore" else "restore"]


def test_snapshot_without_service_state_is_reported(served: Served) -> None:
    repo = served.repo
    served.configure("dump", "exit 1")
    first = served.capture("one", b"1")
    served.configure("dump", f"cat '{served.state}'")
    repo.write("app.py", b"two")
    done = repo.run("envrestore", "--services", first)
    assert (done.status, served.steps) == (5, ["stop", "start"])
    assert "the snapshot has no state of it" in done.err


def test_commands_come_only_from_the_users_configuration(served: Served) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    # Configuration that a clone or a snapshot may contain.
    for name in (".gitconfig", ".envhist", "envhist.config", ".gitmodules"):
        repo.write(name, f'[envhist "service.evil"]\n\tstop = touch {repo.path.parent}/evil\n')
    repo.run("envlog", "capture", check=True)
    repo.run("envrestore", "--services", first, check=True)
    repo.run("envrestore", "--undo", "--services", check=True)
    assert not (repo.path.parent / "evil").exists()
    for verb in ("dump", "restore", "stop", "start"):
        repo.git("config", "--unset", f"envhist.service.kv.{verb}")
    refused = repo.run("envrestore", "--services", first)
    assert refused.status == 3
    assert "envhist.service.<name>.dump" in refused.err


def test_capture_inside_a_dump_does_not_recurse(served: Served) -> None:
    served.configure("dump", "git envlog capture inner >/dev/null && echo state")
    served.capture("outer", b"1")
    assert served.repo.git("log", "--format=%s", _tip(served.repo)).split() == ["outer", "inner"]


def test_interrupted_restore_starts_no_service_and_reports_it(served: Served) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    repo.write("app.py", b"two")
    engine = Engine(repo.path)
    before, target = engine.capture(), engine.history.resolve(first)
    journal, _ = engine.prepare(engine.plan(before, target))
    write_journal(engine.private, replace(journal, notes=((STOPPED, "kv"),)))
    done = repo.run("envrestore", "--continue", check=True)
    assert "services that the restore stopped are still stopped: kv" in done.err
    assert served.steps == []


@pytest.mark.parametrize(
    ("verb", "number", "what"),
    [
        ("dump", signal.SIGINT, "error: stopped: nothing was changed\n"),
        ("stop", signal.SIGTERM, "error: stopped: nothing was changed\n"),
        (
            "restore",
            signal.SIGINT,
            "error: stopped: the files are restored, but the rest of the restore was not finished\n",
        ),
    ],
)
def test_stopped_restore_reports_the_state_of_services(
    served: Served, verb: str, number: signal.Signals, what: str
) -> None:
    repo = served.repo
    first = served.capture("one", b"1")
    repo.write("app.py", b"two")
    begun = repo.path.parent / "begun"
    os.mkfifo(begun)
    served.configure(verb, f"echo $$ > '{begun}'; exec sleep 1000")
    running = subprocess.Popen(
        ["git-envrestore", "--services", first],
        cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    command = int(begun.read_bytes())
    running.send_signal(number)
    _, err = running.communicate()
    assert not _lives(command)
    assert (running.returncode, err.startswith(what)) == (128 + number, True), err
    assert (repo.read("app.py") == b"two") == (verb != "restore")
    # The service that was stopped runs again.
    assert served.steps == {"dump": [], "stop": ["start"], "restore": ["stop", "start"]}[verb]


def test_command_is_killed_with_its_children_after_the_timeout(tmp_path: Path) -> None:
    way = ServiceCommandContext(str(tmp_path), os.environ, str(tmp_path), 0.5)
    why = run(way, "kv", "sleep 1000 & echo $! > child; wait")
    assert why == "it took longer than 0.5 seconds"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 30
    while _lives(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def test_command_is_killed_when_its_output_is_too_large(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w+b") as target:
        why = run_into(
            ServiceCommandContext(str(tmp_path), os.environ, str(tmp_path)), "kv", "yes", target, 1 << 20
        )
    assert why == "its output exceeds the size limit"


def test_process_left_by_a_command_keeps_running(tmp_path: Path) -> None:
    assert (
        run(
            ServiceCommandContext(str(tmp_path), os.environ, str(tmp_path)),
            "kv",
            "sleep 1000 & echo $! > child",
        )
        is None
    )
    child = int((tmp_path / "child").read_text())
    assert _lives(child)
    os.kill(child, signal.SIGKILL)


def test_commands_run_in_the_root_without_variables_of_a_git_command(repo: Repo) -> None:
    repo.git(
        "config", "envhist.service.kv.dump", "pwd; echo $GIT_INDEX_FILE-$GIT_DIR; cat; git rev-parse HEAD"
    )
    (repo.path / "sub").mkdir()
    place = {"GIT_INDEX_FILE": str(repo.path / ".git/index"), "GIT_DIR": str(repo.path / ".git")}
    done = repo.run("envlog", "capture", "one", check=True, env={**place, "GIT_WORK_TREE": str(repo.path)})
    assert "warning" not in done.err
    repo.git("config", "envhist.service.kv.restore", "cat > ../came")
    repo.run("envrestore", "--services", "@", check=True, cwd="sub")
    lines = (repo.path.parent / "came").read_text().splitlines()
    assert lines == [str(repo.path), "-", repo.git("rev-parse", "HEAD")]


def test_command_output_does_not_fill_the_disk(tmp_path: Path) -> None:
    # The limit is 16 MiB: output of exactly that size is not cut.
    words = """head -c 60000000 /dev/zero
until [ "$(stat -L -c %b "/proc/$$/fd/2")" -le 32768 ]; do sleep 0.01; done
echo 'the reason' >&2; exit 3"""
    why = run(ServiceCommandContext(str(tmp_path), os.environ, str(tmp_path), 60.0), "kv", words)
    assert why == "it exited with status 3: the reason"
