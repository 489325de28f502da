"""Passwords in addresses of remotes are passed to git, but are not in our files, messages or traces."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.interop import servers
from tests.support.repository import Repo, make_repo

USER, PASSWORD = "ci-user", "pass=word-that-stays"


class WithPassword(servers.SmartHttp):
    """Answer requests that have the password; request a password for all others."""

    def _serve(self) -> None:
        sent = self.headers.get("Authorization", "").removeprefix("Basic ")
        if base64.b64decode(sent) == f"{USER}:{PASSWORD}".encode():
            super()._serve()
            return
        for _ in self._body():
            pass
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Connection", "close")
        self.end_headers()


def files_with(place: Path, words: bytes) -> list[str]:
    return [str(path) for path in place.rglob("*") if path.is_file() and words in path.read_bytes()]


@pytest.mark.parametrize("named", [True, False])
def test_password_of_an_address_is_in_none_of_our_files(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr(servers, "SmartHttp", WithPassword)
    remote = make_repo(tmp_path / "srv" / "history.git", bare=True, commit=False)
    remote.git("config", "http.receivepack", "true")
    remote.git("config", "uploadpack.allowFilter", "true")
    repo.env["GIT_ENVHIST_TRACE"] = str(tmp_path / "trace")
    repo.env["GIT_TERMINAL_PROMPT"] = "0"
    with servers.http_server(tmp_path / "srv") as address:
        url = address.replace("://", f"://{USER}:{PASSWORD}@") + "/history.git"
        if named:
            repo.git("remote", "add", "origin", url)
        word = "origin" if named else url
        repo.write(".env", "A=1\n")
        repo.run("envlog", "capture", "one", check=True)
        said = [
            repo.run("envlog", "push", "--yes", word, check=True),
            repo.run("envlog", "fetch", word, check=True),
        ]
        repo.run("envlog", "capture", "two", "--force", check=True)
        said += [repo.run("envlog", "push", word, check=True), repo.run("envlog", "fetch", word, check=True)]
    said.append(repo.run("envlog", "fetch", word))
    assert said[-1].status != 0
    assert not [one for one in said if PASSWORD in one.out + one.err]
    assert files_with(repo.path / ".git/envhist", PASSWORD.encode()) == []
    assert b"push" in (tmp_path / "trace").read_bytes()
    assert PASSWORD.encode() not in (tmp_path / "trace").read_bytes()
