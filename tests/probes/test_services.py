"""Services of an environment: a development server changes between two snapshots, in text and JSON."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.diff.facts import command_for
from git_envhist.model import FactChange
from git_envhist.platform import SYSTEM
from git_envhist.probes.processes import parse_tcp, parse_unix, tcp_listeners, unix_listeners
from git_envhist.probes.services import mask_command_line
from tests.support.repository import Repo

pytestmark = pytest.mark.skipif(not SYSTEM.proc, reason="this system does not list processes")
SECRET = "hunter2hunter2"
SERVER = """\
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def here(repo: Repo) -> Repo:
    """Yield an environment on this machine, without facts about its packages."""
    repo.env["GIT_ENVHIST_MACHINE_ROOT"] = "/"
    repo.write("web/server.py", SERVER)
    return repo


@contextmanager
def running(repo: Repo, *words: str, place: str = "web") -> Iterator[str]:
    """Run a server of the environment and return its port; it ends when its input is closed."""
    command = [sys.executable, *(words or ("server.py", "0"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=repo.path / place, text=True, **pipes) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        # The server ends when its input is closed, at the end of the block.


def capture(repo: Repo, intent: str, name: str | None = None, verify: str | None = None) -> str:
    environ = {**os.environ, "GIT_ENVHIST_MACHINE_ROOT": repo.env["GIT_ENVHIST_MACHINE_ROOT"]}
    history = EnvHistory.open(str(repo.path), environ=environ, workers="fork", one_command=True)
    captured = history.capture(intent, name=name, verify=verify).snapshot
    assert captured is not None
    return captured.id


def services(repo: Repo, *moments: str) -> str:
    return repo.run("envdiff", *moments, "--only=services", check=True).out


def of_services(told: list[dict[str, object]]) -> list[dict[str, object]]:
    return [one for one in told if one["probe"] == "service"]


def test_started_moved_and_stopped_server_is_shown(here: Repo) -> None:
    program = os.path.basename(sys.executable)
    capture(here, "nothing runs")
    with running(here) as port:
        started = capture(here, "it runs")
    with running(here) as other:
        again = capture(here, "moved")
    capture(here, "stopped")
    stories = here.run("envlog", "--format=%(story)", check=True).out.splitlines()
    assert stories[:3] == [
        f"service: -server.py :{other}",
        f"service: server.py :{port} → :{other}",
        f"service: +server.py :{port}",
    ]
    row = "service   web            "
    assert services(here, "@~3", "@~2") == f"{row}+ server.py :{port} ({program} server.py 0)\n"
    assert services(here, "@~2", "@~1") == f"{row}~ server.py :{port} → :{other} ({program} server.py 0)\n"
    assert services(here, "@~1", "@") == f"{row}- server.py :{other} ({program} server.py 0)\n"
    assert services(here, "@", "now") == services(here, "@~3", "@") == ""
    told = json.loads(here.run("envdiff", "--json", "@~2", "@~1", check=True).out)["facts"]
    moved = {
        "probe": "service",
        "key": "web/server.py",
        "before": f":{port}",
        "after": f":{other}",
        "role": "direct",
    }
    assert of_services(told) == [{**moved, "command": f"{program} server.py 0"}]
    # The facts contain nothing that differs between two starts of the same program.
    texts = [here.git("show", f"{moment}:.envhist/facts/service") for moment in (started, again)]
    assert texts[0].replace(f":{port} ", f":{other} ") == texts[1]
    story = json.loads(here.run("envlog", "show", "@~1", "--json", check=True).out)["story"]
    assert of_services(story) == of_services(told)


def test_started_server_alone_makes_no_snapshot_and_no_process(here: Repo) -> None:
    first = capture(here, "nothing runs")
    with running(here) as port:
        only = here.run("envlog", "capture", "--porcelain", "--if-changed", check=True)
        assert only.out.strip() == first
        assert f"+ server.py :{port}" in services(here, "@")


def test_restore_prints_the_command_of_a_stopped_service(here: Repo) -> None:
    with running(here) as port:
        capture(here, "it runs", name="then")
    here.write("app.py", "changed\n")
    program = os.path.basename(sys.executable)
    planned = json.loads(here.run("envrestore", "-n", "--json", "then", check=True).out)["outside"]
    assert [(one["key"], one["command"]) for one in of_services(planned)] == [
        ("web/server.py", f"cd web && {program} server.py 0")
    ]
    done = here.run("envrestore", "then", check=True)
    line = f"service server.py :{port} (cd web && {program} server.py 0)"
    assert line in next(line for line in (done.out + done.err).splitlines() if "not restored" in line)
    part = here.run("envrestore", "then", "--only=packages", check=True)
    assert "service" not in part.out + part.err


def test_service_outside_the_environment_is_not_listed(here: Repo, tmp_path: Path) -> None:
    capture(here, "nothing runs")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(here.path / "web/server.py", elsewhere)
    with running(here, "server.py", "0", place=str(elsewhere)), socket.create_server(("127.0.0.1", 0)):
        assert services(here, "@") == ""


def test_possible_secret_is_in_no_fact(here: Repo) -> None:
    words = ("server.py", "0", "--password", SECRET, f"--token={SECRET}", SECRET, f"-p{SECRET}")
    with running(here, *words):
        capture(here, "it runs")
    text = here.git("show", "refs/envhist/heads/" + timeline(here) + ":.envhist/facts/service")
    assert "web/server.py" in text
    assert SECRET not in text


def timeline(repo: Repo) -> str:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").removeprefix(
        "refs/envhist/heads/"
    )


def test_unix_socket_is_listed_by_its_path(here: Repo) -> None:
    here.write(
        "unix.py",
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind('app.sock')\ns.listen()\n"
        "print('bound', flush=True)\nsys.stdin.read()\n",
    )
    capture(here, "nothing runs")
    with running(here, "../unix.py"):
        assert "service   web            + unix.py web/app.sock (" in services(here, "@")


def test_services_are_unknown_without_proc(here: Repo) -> None:
    with running(here):
        here.run("envlog", "capture", env={"GIT_ENVHIST_WITHOUT": "proc"}, check=True)
    capture(here, "seen again")
    assert services(here, "@~1", "@") == ""


def test_check_result_is_reused_while_the_same_services_run(here: Repo) -> None:
    with running(here):
        capture(here, "it runs", verify="true")
        assert verdict(here, capture(here, "it runs on")) == "pass"
    assert verdict(here, capture(here, "nothing runs")) is None


def verdict(repo: Repo, moment: str) -> str | None:
    told = json.loads(repo.run("envlog", "show", "--json", moment, check=True).out)["verify"]
    return told and str(told["status"])


def in_environment(*paths: str) -> dict[str, str]:
    return {path: path for path in paths}


@pytest.mark.parametrize(
    ("words", "name", "command"),
    [
        (["python3", "-m", "http.server", "8000"], "http.server", "python3 -m http.server 8000"),
        (["/usr/bin/node", "server.js", "--port", "8000"], "server.js", "node server.js --port 8000"),
        (["node", "/opt/x/bin/vite", "dev"], "vite", "node vite dev"),
        (
            ["python", "/usr/bin/gunicorn", "app:app", "-b", "127.0.0.1:8000"],
            "gunicorn",
            "python gunicorn app:app -b 127.0.0.1:8000",
        ),
        (
            ["python", "manage.py", "runserver", "0.0.0.0:8000"],
            "manage.py",
            "python manage.py runserver 0.0.0.0:8000",
        ),
        (["redis-server 127.0.0.1:8000"], "redis-server", "redis-server 127.0.0.1:8000"),
        (["/usr/lib/postgresql/15/bin/postgres", "-D", "/var/lib/db"], "postgres", "postgres -D ***"),
        (["java", "-jar", "app.jar", "-Dpw=geheim"], "app.jar", "java -jar app.jar -D***"),
        (
            ["mysqld", "-pgeheim", "--user=root", "--key", "server.js"],
            "mysqld",
            "mysqld -p*** --user=*** --key ***",
        ),
        (["serve", "postgres://u:geheim@host/db", "8000", "9999"], "serve", "serve *** 8000 ***"),
        (["node", "-e", "geheim"], "node", "node -e ***"),
        (["server.js:", "worker geheim"], "server.js", "server.js ***"),
        ([], "program", "program"),
    ],
)
def test_command_line_is_masked(words: list[str], name: str, command: str) -> None:
    find = in_environment("server.js", "app.jar", "manage.py", "app.py").get
    told = mask_command_line(words, "/bin/\0", frozenset(("8000",)), find)
    assert (told.name, told.command) == (name, command)


@given(st.lists(st.text(), max_size=8), st.text())
def test_any_command_line_is_accepted(words: list[str], program: str) -> None:
    told = mask_command_line(words, program, frozenset(), lambda word: None)
    assert told.name
    assert "/" not in told.name
    assert "\n" not in told.command


@given(st.binary())
def test_malformed_socket_lists_raise_nothing(table: bytes) -> None:
    assert all(found.port >= 0 for found in parse_tcp(b"head\n" + table))
    assert all(path for _, path in parse_unix(b"head\n" + table))


def test_kernel_query_agrees_with_its_lists(tmp_path: Path) -> None:
    with ExitStack() as stack:
        mine = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        bound = stack.enter_context(socket.socket(socket.AF_UNIX))
        bound.bind(str(tmp_path / "s"))
        bound.listen()
        ports = {one.getsockname()[1] for one in mine}
        numbers = {os.fstat(one.fileno()).st_ino for one in mine}
        asked = {one for one in tcp_listeners() if one.inode in numbers}
        listed = {one for one in parse_tcp(Path("/proc/net/tcp").read_bytes()) if one.inode in numbers}
        assert {one.port for one in asked} == ports
        assert {one.owner for one in asked} == {os.geteuid()}
        assert asked == listed
        assert unix_listeners()[os.fstat(bound.fileno()).st_ino] == os.fsencode(tmp_path / "s")


def test_masked_command_is_not_offered() -> None:
    def command(called: str, key: str = "web/x") -> str:
        return command_for(FactChange("service", key, None, ":80", by=called))

    assert command("node x.js") == "cd web && node x.js"
    assert command("node x.js", "x") == "node x.js"
    assert (
        command("node x.js ***")
        == command("node $(reboot)")
        == command("node x", "a;b/x")
        == command("")
        == ""
    )
