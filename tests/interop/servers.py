"""Real servers on the loopback interface: sshd, and git's http backend behind a small web server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import pytest

from tests.support.needs import skip_without

PATIENCE = 10.0
AT_ONCE = 1 << 20


def find_sshd() -> str:
    found = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if found is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        skip_without("sshd")
    shell = pwd.getpwuid(os.geteuid()).pw_shell
    if os.path.basename(shell) in ("nologin", "false"):
        pytest.skip(f"sshd refuses users with the shell {shell}")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, child: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and child.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"sshd does not start: {log.read_text(errors='replace')[-500:]}")


@contextmanager
def ssh_server(place: Path) -> Iterator[str]:
    """Run an sshd with its own keys; yield a value for GIT_SSH_COMMAND. The host's name is `loopback`."""
    sshd = find_sshd()
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    (place / "authorized").write_text((place / "user.pub").read_text())
    port = free_port()
    write_ssh_files(place, port)
    if os.geteuid() == 0:
        # sshd needs this directory as root; the package creates it only when the service is started.
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    log = place / "log"
    words = [sshd, "-D", "-e", "-f", str(place / "sshd")]
    with log.open("wb") as said, subprocess.Popen(words, stderr=said) as child:
        try:
            wait_for(port, child, log)
            yield f"ssh -F {place / 'ssh'}"
        finally:
            child.terminate()


def write_ssh_files(place: Path, port: int) -> None:
    lines = ["ListenAddress 127.0.0.1", f"Port {port}", f"HostKey {place / 'host'}", "PidFile none", "UsePAM no",
             f"AuthorizedKeysFile {place / 'authorized'}", "StrictModes no", "PasswordAuthentication no",
             "PermitRootLogin prohibit-password", "LogLevel ERROR"]  # fmt: skip
    (place / "sshd").write_text("\n".join([*lines, ""]))
    key = (place / "host.pub").read_text()
    (place / "known").write_text(f"loopback {key}")
    lines = ["Host loopback", "HostName 127.0.0.1", f"Port {port}", f"IdentityFile {place / 'user'}",
             "IdentitiesOnly yes", "HostKeyAlias loopback", f"UserKnownHostsFile {place / 'known'}",
             "StrictHostKeyChecking yes", "BatchMode yes"]  # fmt: skip
    (place / "ssh").write_text("\n".join([*lines, ""]))


class SmartHttp(BaseHTTPRequestHandler):
    """Pass each request to `git http-backend`, as a web server with CGI does, without reading it whole into memory."""

    root = ""
    counted: Counted

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield from self._bytes(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield from self._bytes(size)
            self.rfile.readline()
        self.rfile.readline()

    def _bytes(self, left: int) -> Iterator[bytes]:
        while left and (part := self.rfile.read(min(left, AT_ONCE))):
            left -= len(part)
            yield part

    def _serve(self) -> None:
        with tempfile.TemporaryFile() as body:
            for part in self._body():
                body.write(part)
            size = body.tell()
            body.seek(0)
            words = ["git", "http-backend"]
            with subprocess.Popen(
                words, stdin=body, stdout=subprocess.PIPE, env=self._variables(size)
            ) as child:
                assert child.stdout is not None
                sent = self._answer(child.stdout)
        self.counted.add(size, sent)

    def _variables(self, size: int) -> dict[str, str]:
        path, _, query = self.path.partition("?")
        return {
            **os.environ, "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": "test", "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(size),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip

    def _answer(self, told: IO[bytes]) -> int:
        """Send the program's output as the response and close the connection; return the number of bytes."""
        fields = [line.decode().partition(": ")[::2] for line in iter(told.readline, b"\r\n") if line.strip()]
        self.send_response(int(dict(fields).get("Status", "200").split()[0]))
        for key, value in fields:
            if key != "Status":
                self.send_header(key, value.strip())
        self.send_header("Connection", "close")
        self.end_headers()
        sent = 0
        while part := told.read(AT_ONCE):
            self.wfile.write(part)
            sent += len(part)
        return sent

    def log_message(self, format: str, *args: object) -> None:
        pass


class Counted:
    """Count the bytes sent and received, without HTTP's own headers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received = self.sent = 0

    def add(self, received: int, sent: int) -> None:
        with self._lock:
            self.received += received
            self.sent += sent


@contextmanager
def http_server(root: Path, counted: Counted | None = None) -> Iterator[str]:
    """Serve all repositories below a directory over smart http; yield the address."""
    handler = type("Handler", (SmartHttp,), {"root": str(root), "counted": counted or Counted()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
