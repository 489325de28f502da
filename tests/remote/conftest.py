"""Fixtures: a strict remote, and two users who share a history through it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.servers import http_server, ssh_server
from tests.support.repository import Repo, make_repo

STRICT = ("receive.fsckObjects", "transfer.fsckObjects", "http.receivepack", "uploadpack.allowFilter")


def make_remote(place: Path, *, lazy: bool = True) -> Repo:
    """Create a bare repository that checks all objects it receives."""
    bare = make_repo(place, bare=True)
    for key in STRICT:
        bare.git("config", key, "true")
    bare.git("config", "uploadpack.allowAnySHA1InWant", "true")
    if not lazy:
        bare.git("config", "uploadpack.allowFilter", "false")
    return bare


@pytest.fixture
def bare(tmp_path: Path, repo: Repo) -> Repo:
    """Return a strict remote, configured as `origin` of `repo`."""
    made = make_remote(tmp_path / "srv" / "remote.git")
    repo.git("remote", "add", "origin", str(made.path))
    return made


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as command:
        yield command


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path, bare: Repo) -> Iterator[Callable[[str], str]]:
    """Return a function that maps a transport to the remote's address."""
    servers = []

    def give(transport: str) -> str:
        if transport == "ssh":
            os.environ["GIT_SSH_COMMAND"] = request.getfixturevalue("sshd")
            return f"ssh://loopback{bare.path}"
        if transport == "http":
            server = http_server(tmp_path / "srv")
            servers.append(server)
            return f"{server.__enter__()}/remote.git"
        return str(bare.path) if transport == "path" else f"file://{bare.path}"

    yield give
    os.environ.pop("GIT_SSH_COMMAND", None)
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def colleague(tmp_path: Path, repo: Repo, bare: Repo) -> Repo:
    """Return the clone of another user, with a separate home directory."""
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    home = tmp_path / "their-home"
    env = {**repo.env, "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}
    made = Repo(tmp_path / "theirs", env)
    repo.git("clone", "-q", str(bare.path), str(made.path))
    return made


def refs(repo: Repo, *prefixes: str) -> dict[str, str]:
    """Return the refs below `prefixes`, each with its hash."""
    lines = repo.git("for-each-ref", "--format=%(refname) %(objectname)", *prefixes).splitlines()
    return dict(line.split(" ") for line in lines)


def timeline(repo: Repo) -> str:
    """Return the name of the repository's only timeline."""
    (ref,) = refs(repo, "refs/envhist/heads")
    return ref.removeprefix("refs/envhist/heads/")


def hook(bare: Repo, text: str, name: str = "pre-receive") -> None:
    """Install a hook in the remote."""
    place = bare.path / "hooks" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("#!/bin/sh\n" + text)
    place.chmod(0o755)
