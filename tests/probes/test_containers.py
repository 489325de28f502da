"""Containers of an environment, as listed by docker over its socket."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.probes import containers
from git_envhist.probes.base import ProbeTarget
from tests.support.repository import Repo

# The relevant fields of `GET /containers/json`, from docker's reference.
TOP = "/home/u/work"


def container(name: str, image: str, *ports: int, **more: Any) -> dict[str, Any]:
    told = [
        {"IP": ip, "PrivatePort": 80, "PublicPort": port, "Type": "tcp"}
        for port in ports
        for ip in ("0.0.0.0", "::")
    ]
    return {
        "Id": "8dfafdbc3a40",
        "Names": [f"/{name}"],
        "Image": image,
        "Ports": told,
        "Labels": {},
        "Mounts": [],
        **more,
    }


def answer(*told: Any) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(told).encode()


def composed(top: str, service: str) -> dict[str, str]:
    return {"com.docker.compose.project.working_dir": top, "com.docker.compose.service": service}


def mounted(source: str) -> list[dict[str, str]]:
    return [{"Type": "bind", "Source": source, "Destination": "/app"}]


def said(*told: Any) -> dict[str, str]:
    return {fact.key: fact.value for fact in containers.parse(answer(*told), TOP)}


def test_only_containers_of_the_environment_are_listed() -> None:
    assert said(
        container("work-db-1", "postgres:16", 5432, Labels=composed(TOP, "db")),
        container("app", "python:3.12", Mounts=mounted(f"{TOP}/web")),
        container("deep", "redis", Labels=composed(f"{TOP}/infra", "cache")),
        container("other", "redis:7", 6379, Mounts=mounted("/home/u/workshop")),
        container("nobody", "redis:7", 6380),
        container("x; rm -rf ~", "redis", Mounts=mounted(TOP)),
    ) == {"db": "postgres:16 :5432", "app": "python:3.12", "infra/cache": "redis"}


@pytest.mark.parametrize("garbage", [b"", b"HTTP/1.0 500 no\r\n\r\n[]", b"HTTP/1.0 200 OK\r\n\r\n{}", b"x"])
def test_malformed_docker_answer_is_an_error(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"docker"):
        containers.parse(garbage, TOP)


values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["Names", "Image", "Ports", "Labels", "Mounts", "Type", "Source", "PublicPort"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.lists(values))
def test_docker_fields_of_any_type_raise_nothing(told: list[Any]) -> None:
    assert all(fact.probe == "container" for fact in containers.parse(answer(*told), TOP))


@contextmanager
def answering(path: Path, body: list[bytes]) -> Iterator[None]:
    """Answer on a socket like docker; without an answer, stay silent."""
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        talking = threading.Thread(target=_talk, args=(listening, body))
        talking.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            talking.join()


def _talk(listening: socket.socket, body: list[bytes]) -> None:
    held = []
    while True:
        try:
            line, _ = listening.accept()
        except OSError:
            break
        held.append(line)
        if body:
            line.recv(1 << 12)
            line.sendall(body[0])
            line.close()
    for line in held:
        line.close()


@pytest.fixture
def machine() -> Iterator[Path]:
    """Return a root with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="m") as root:
        yield Path(root)


def test_started_container_is_shown(repo: Repo, machine: Path) -> None:
    repo.env["GIT_ENVHIST_MACHINE_ROOT"] = str(machine)
    body = [answer()]
    with answering(machine / "var/run/docker.sock", body):
        repo.run("envlog", "capture", check=True)
        body[0] = answer(
            container("w-db-1", "postgres:16", 5432, Labels=composed(str(repo.path.resolve()), "db"))
        )
        repo.run("envlog", "capture", check=True)
    shown = repo.run("envdiff", "@~1", "@", "--only=services", check=True).out
    assert shown == "container                + db postgres:16 :5432\n"


def test_silent_docker_gives_a_warning(machine: Path) -> None:
    place = ProbeTarget(str(machine), str(machine), "")
    assert containers.stamp(place) is None
    with answering(machine / "var/run/docker.sock", []), pytest.raises(TimeoutError):
        containers.stamp(place)
