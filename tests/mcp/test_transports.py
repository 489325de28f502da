"""The server on its transports: over HTTP with a token, stopped calls, and the official inspector."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from git_envhist.consent import trusted_list
from tests.real.tools import MACHINE, tools
from tests.restore.engine import Engine
from tests.support.needs import require
from tests.support.repository import Repo

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

import httpx2  # noqa: E402 - only where it is installed
from mcp import Client  # noqa: E402 - likewise
from mcp.client.streamable_http import streamable_http_client  # noqa: E402 - likewise

from git_envhist.mcp.hints import PREFIX  # noqa: E402 - likewise
from git_envhist.mcp.limit_connections import HEADER_TIMEOUT, ConnectionLimiter  # noqa: E402 - likewise
from tests.mcp.test_server import LONG, MODES, Person, answer, error_in, refusal, talk  # noqa: E402 - likewise

TOKEN = "0123456789abcdefghijklmnop"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
ERAS = ("legacy", "modern")


@contextmanager
def serving(
    repo: Repo, *words: str, token: str | None = TOKEN, descriptors: int | None = None
) -> Iterator[tuple[str, str]]:
    """Serve the repository over HTTP; yield the address and the token that was printed.

    `descriptors`: the number of descriptors that the server may have.
    """
    program = shutil.which("git-envlog")
    assert program is not None
    env = {**repo.env, **({"GIT_ENVHIST_MCP_TOKEN": token} if token is not None else {})}
    limited = ("sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh") if descriptors else ()
    command = [*limited, program, "mcp", "--http", "0", *words]
    with subprocess.Popen(command, cwd=repo.path, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("serving on ").strip()
        printed = "" if token is not None else server.stdout.readline().removeprefix("token: ").strip()
        try:
            yield address, printed
        finally:
            server.terminate()
            assert server.wait(LONG) == 128 + signal.SIGTERM
            assert server.stdout.read() == ""


def headers(token: str = TOKEN) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }


@pytest.mark.parametrize("mode", MODES)
def test_agent_restores_over_http_with_the_token(repo: Repo, mode: str) -> None:
    repo.write("f", "old\n")
    repo.run("envlog", "capture", check=True)
    repo.write("f", "new\n")
    person = Person("accept", {"confirm": True})
    steps: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    async def go(address: str) -> None:
        with anyio.fail_after(LONG):
            async with (
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
                Client(
                    streamable_http_client(address, http_client=http), mode=mode, elicitation_callback=person
                ) as client,
            ):
                plan = await answer(client, "plan_restore", revision="@")
                done: Any = await client.call_tool(
                    f"{PREFIX}restore", {"plan_id": plan["plan_id"]}, progress_callback=note
                )
                assert done.structured_content["data"]["changed"]
                # The token is no variable of the programs that the server starts.
                assert error_in(await refusal(client, "verify"))["code"] in ("no-check", "not-approved")

    with serving(repo) as (address, _):
        anyio.run(go, address)
    assert repo.read("f") == b"old\n"
    assert len(person.asked) == 1
    assert "restoring 1 path" in steps


def test_server_on_a_port_answers_only_with_the_token_and_only_on_this_machine(repo: Repo) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with serving(repo, token=None) as (address, token):
        port = int(address.rpartition(":")[2].partition("/")[0])
        assert len(token) >= 40

        def status(**changed: str) -> int:
            given = {name: one for name, one in {**headers(token), **changed}.items() if one}
            return httpx2.post(address, json=body, headers=given).status_code

        assert status(Authorization="") == 401
        for wrong in ("Bearer", f"Bearer {token}x", f"Bearer {token[:-1]}", token, f"Basic {token}"):
            assert status(Authorization=wrong) == 401
        # A web page can reach this address under a name of its own (DNS rebinding).
        assert status(Host="evil.example") == 421
        assert status(Origin="https://evil.example") == 403
        assert status() < 500
        assert status() not in (401, 403, 421)
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            place, number = line.split()[1].split(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                assert place == "0100007F"
        assert "cannot listen" in repo.run("envlog", "mcp", "--http", str(port)).err


FLOOD = """
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, 1_000))
address, held = ("127.0.0.1", int(sys.argv[1])), []
sent = sys.argv[2].encode().decode("unicode_escape").encode()
for number in range(int(sys.argv[3])):
    made = socket.socket()
    made.setblocking(False)
    made.connect_ex(address)
    held.append((made, number))
    if len(held) > 900:
        held.pop(0)[0].close()
    for one, at in held[-20:]:
        try:
            one.send(sent)
        except OSError:
            pass
    if number == 600:
        print("open", flush=True)
    time.sleep(0.0005)
sys.stdin.read()
"""
"""Opens connections, keeps 900 of them, and sends something on each without ever sending the token."""
UNFINISHED = ("", r"POST /mcp HTTP/1.1\r\nX: ", r"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")


@contextmanager
def flood(address: str, sent: str, count: int) -> Iterator[None]:
    """Run the flood, as another account if the test runs as root, until the block ends."""
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    prefix = other if os.geteuid() == 0 and shutil.which("setpriv") else ()
    port = address.rpartition(":")[2].partition("/")[0]
    # The interpreter of the system: another account may be unable to enter the directory of this one.
    python = os.path.realpath(sys.executable)
    command = [*prefix, python, "-I", "-S", "-c", FLOOD, port, sent, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flooding:
        assert flooding.stdout is not None
        assert flooding.stdout.readline() == "open\n"
        yield
        flooding.kill()


def ping_until_answered(address: str) -> None:
    """Send requests with the token until the server answers one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    deadline = time.monotonic() + LONG
    while True:
        assert time.monotonic() < deadline
        with suppress(httpx2.HTTPError):
            assert httpx2.post(address, json=body, headers=headers(), timeout=LONG).status_code < 500
            return


@pytest.mark.parametrize("sent", UNFINISHED)
def test_client_with_the_token_is_served_while_others_open_connections(repo: Repo, sent: str) -> None:
    with serving(repo, descriptors=128) as (address, _):
        with flood(address, sent, 1_000_000):
            for _number in range(5):
                ping_until_answered(address)
        ping_until_answered(address)


def test_client_with_the_token_is_served_after_others_filled_the_queue(repo: Repo) -> None:
    with serving(repo, descriptors=128) as (address, _), flood(address, "", 601):
        ping_until_answered(address)


def test_connections_without_the_token_are_limited_and_closed_in_time() -> None:
    now = [0.0]
    connections = ConnectionLimiter(2, lambda: now[0])
    first, second, third, fourth = (FakeTransport(port) for port in range(4))
    connections.add(first)
    connections.add(second)
    connections.accept(("127.0.0.1", 0))
    connections.add(third)
    assert not second.aborted
    connections.add(fourth)
    assert [one.aborted for one in (first, second, third, fourth)] == [False, True, False, False]
    now[0] = HEADER_TIMEOUT
    asyncio.run(connections.close_expired())
    assert [one.aborted for one in (first, second, third, fourth)] == [False, True, True, True]


class FakeTransport(asyncio.Transport):
    def __init__(self, port: int) -> None:
        super().__init__({"peername": ("127.0.0.1", port)})
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


STOPPED_EARLY = """
import os, signal
from git_envhist.mcp.http import serve_http
from git_envhist.mcp.confirm_plans import HistoryServer
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
def announce(line):
    os.kill(os.getpid(), signal.SIGTERM)
    print("announced", flush=True)
serve_http(HistoryServer("test"), 0, announce)
"""


def test_signal_right_after_the_announcement_ends_the_server() -> None:
    env = {**os.environ, "GIT_ENVHIST_MCP_TOKEN": TOKEN}
    command = [sys.executable, "-c", STOPPED_EARLY]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONG, check=True)
    assert done.stdout == "announced\nhandled\n"


@pytest.mark.parametrize("token", ["", "short", "0123456789abcdef\x7f0123456789", "é" * 40])
def test_token_that_can_be_guessed_is_refused(repo: Repo, token: str) -> None:
    done = repo.run("envlog", "mcp", "--http", "0", env={"GIT_ENVHIST_MCP_TOKEN": token})
    assert (done.status, done.out) == (129, "")
    assert "GIT_ENVHIST_MCP_TOKEN is too short" in done.err


@pytest.mark.parametrize("port", ["x", "-1", "65536", "127.0.0.1"])
def test_port_that_is_none_is_a_usage_error(repo: Repo, port: str) -> None:
    assert repo.run("envlog", "mcp", f"--http={port}").status == 129


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + LONG
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text().strip()


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + LONG
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def endless_check(repo: Repo, tmp_path: Path) -> Path:
    """Configure an approved check that never ends; return the file with its process id."""
    running = tmp_path / "running"
    check = f"echo $$ >{running}; exec sleep 1000"
    repo.git("config", "envhist.verify", check)
    trusted_list(repo.env).add_command(str(repo.path / ".git"), check)
    return running


@pytest.mark.parametrize("mode", MODES)
def test_cancelled_call_ends_the_program_and_its_check(repo: Repo, tmp_path: Path, mode: str) -> None:
    running = endless_check(repo, tmp_path)

    async def use(client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, f"{PREFIX}verify", {})
            pid = int(await anyio.to_thread.run_sync(wait_for, running))
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(wait_for_end, pid)
        # The server goes on.
        assert len((await answer(client, "log"))["snapshots"]) == 1

    talk(repo, use, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_cancelled_restore_is_done_or_undone(repo: Repo, mode: str) -> None:
    for number in range(3_000):
        repo.write(f"many/{number}", "old\n")
    repo.run("envlog", "capture", "old", check=True)
    for number in range(3_000):
        repo.write(f"many/{number}", "new\n")
    journal = repo.path / ".git/envhist/restore/journal"

    def contents() -> set[bytes]:
        return {repo.read(f"many/{number}") for number in range(3_000)}

    async def use(client: Client) -> None:
        plan = await answer(client, "plan_restore", revision="@")
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                # The journal exists while files are exchanged.
                while not journal.exists():
                    await anyio.sleep(0.001)
                group.cancel_scope.cancel()

            group.start_soon(stop)
            await client.call_tool(f"{PREFIX}restore", {"plan_id": plan["plan_id"]})
            group.cancel_scope.cancel()
        deadline = time.monotonic() + LONG
        while journal.exists() or len(contents()) > 1:
            assert time.monotonic() < deadline
            await anyio.sleep(0.1)
        # Nothing is left that another restore would have to finish first.
        assert (await answer(client, "plan_restore", revision="@"))["plan_id"]

    talk(repo, use, mode=mode)
    assert contents() in ({b"old\n"}, {b"new\n"})


@pytest.mark.parametrize(("how", "content"), [("continue", b"old\n"), ("abort", b"new\n")])
def test_interrupted_restore_is_recovered_by_a_tool_that_the_person_confirms(
    repo: Repo, how: str, content: bytes
) -> None:
    repo.write("f", "old\n")
    repo.run("envlog", "capture", "--name", "old", check=True)
    repo.write("f", "new\n")
    declines, agrees = Person("decline"), Person("accept", {"confirm": True})

    async def refuse(client: Client) -> None:
        plan = await answer(client, "plan_restore", revision="old")
        engine = Engine(repo.path)
        before, target = engine.capture(), engine.history.resolve("old")
        engine.prepare(engine.plan(before, target))
        refused = error_in(await refusal(client, "capture", intent="x"))
        assert refused["code"] == "restore-left"
        assert refused["hint"] == f"{PREFIX}recover finishes or undoes the interrupted restore"
        assert "the user declined" in await refusal(client, "restore", plan_id=plan["plan_id"])
        assert "the user declined" in await refusal(client, "recover", how=how)

    async def recover(client: Client) -> None:
        assert (await answer(client, "recover", how=how))["undone"] is (how == "abort")
        again = error_in(await refusal(client, "recover", how=how))
        assert again["message"] == "no restore was interrupted"

    talk(repo, refuse, person=declines)
    assert repo.read("f") == b"new\n"
    talk(repo, recover, person=agrees)
    assert repo.read("f") == content
    assert len(agrees.asked) == 2


def test_server_and_its_program_end_when_the_client_is_gone(repo: Repo, tmp_path: Path) -> None:
    running = endless_check(repo, tmp_path)
    program = shutil.which("git-envlog")
    assert program is not None
    client = {"name": "c", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    messages = (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": f"{PREFIX}verify"}},
    )
    with subprocess.Popen(
        [program, "mcp"], cwd=repo.path, env=repo.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        for message in messages:
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
        pid = int(wait_for(running))
        server.stdin.close()
        assert server.wait(LONG) == 0
    wait_for_end(pid)


@pytest.fixture(scope="session")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command line of the official inspector, installed from npm."""
    npm = require("npm", MACHINE.get("PATH"))
    place = tmp_path_factory.mktemp("inspector")
    words = (
        npm,
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--silent",
        "--prefix",
        str(place),
    )
    env = tools(tmp_path_factory.mktemp("npm"))
    done = subprocess.run([*words, INSPECTOR], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install the inspector: {done.stderr[-200:]}")
    return (str(place / "node_modules/.bin/mcp-inspector"), "--cli")


def inspect(repo: Repo, words: Sequence[str]) -> Any:
    env = {**repo.env, "PATH": f"{repo.env['PATH']}:{MACHINE['PATH']}"}
    done = subprocess.run(
        words, cwd=repo.path, env=env, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_official_inspector_finds_and_calls_the_tools(
    repo: Repo, inspector: tuple[str, ...], transport: str, era: str
) -> None:
    repo.write("f", "old\n")
    repo.run("envlog", "capture", "the first", check=True)
    program = shutil.which("git-envlog")
    assert program is not None

    def ask(target: Sequence[str], *words: str) -> Any:
        return inspect(repo, [*inspector, *target, "--protocol-era", era, "--method", *words])

    def use(*target: str) -> None:
        # --strict: schemas that some client cannot read are errors.
        listed = ask(target, "tools/list", "--strict")["tools"]
        assert all(one["name"].startswith(PREFIX) and one["outputSchema"] for one in listed)
        called = ask(target, "tools/call", "--tool-name", f"{PREFIX}log", "--tool-arg", "limit=1")
        assert called["structuredContent"]["data"]["snapshots"][0]["title"] == "the first"
        (resource,) = ask(target, "resources/list")["resources"]
        read = ask(target, "resources/read", "--uri", f"{resource['uri']}/file/f")
        assert json.loads(read["contents"][0]["text"])["data"]["text"] == "old\n"

    if transport == "stdio":
        use(program, "mcp")
        return
    with serving(repo) as (address, _):
        use(address, "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}")


def test_loopback_is_the_only_address(repo: Repo) -> None:
    names = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    others = [name for name in names if not str(name).startswith("127.")]
    with serving(repo) as (address, _):
        port = int(address.rpartition(":")[2].partition("/")[0])
        for name in others:
            with socket.socket() as client:
                assert client.connect_ex((str(name), port)) != 0
    assert os.environ.get("GIT_ENVHIST_MCP_TOKEN") is None
