"""List containers that belong to an environment: started by its Compose files, or with one of its directories mounted.

Docker is queried over its socket with a short timeout. Without a socket, or without permission, nothing is
known. The stamp is a hash of all facts, because there are few.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Keyed, ProbeTarget

PROBE = "container"
SOCKET = "var/run/docker.sock"
HOST_VARIABLE, UNIX_SCHEME = "DOCKER_HOST", "unix://"
SECONDS = 0.3
MAX_SIZE = 16 << 20
REQUEST = b"GET /containers/json HTTP/1.0\r\nHost: docker\r\n\r\n"
COMPOSE_DIRECTORY = "com.docker.compose.project.working_dir"
COMPOSE_SERVICE = "com.docker.compose.service"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}\Z")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,200}\Z")


def stamp(target: ProbeTarget) -> str | None:
    """Return a hash of all facts."""
    answer = _ask(_socket(target))
    if answer is None:
        return None
    text = "\0".join(f"{fact.key} {fact.value}" for fact in parse(answer, os.path.realpath(target.top)))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def facts_of(target: ProbeTarget, keyed: Keyed) -> Iterator[Fact]:
    """Yield each container with its image and published ports."""
    answer = _ask(_socket(target))
    if answer is not None:
        yield from parse(answer, os.path.realpath(target.top))


def parse(answer: bytes, top: str) -> list[Fact]:
    """Return the containers in Docker's answer that belong to an environment. Raise ValueError if it is
    malformed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError(f"docker answered: {head[:80]!r}")
    containers = json.loads(body)
    if not isinstance(containers, list):
        raise ValueError("docker's answer is not a list")
    found = (_container_fact(one, top) for one in containers if isinstance(one, dict))
    return sorted((fact for fact in found if fact is not None), key=lambda fact: (fact.key, fact.value))


def _container_fact(container: dict[str, Any], top: str) -> Fact | None:
    labels = container.get("Labels")
    labels = labels if isinstance(labels, dict) else {}
    inside = _inside(labels.get(COMPOSE_DIRECTORY), top)
    if inside is None and not any(_inside(path, top) is not None for path in _mounted(container)):
        return None
    names = container.get("Names")
    first = names[0] if isinstance(names, list) and names else ""
    name = next(
        (one for one in (labels.get(COMPOSE_SERVICE), first) if isinstance(one, str) and one), ""
    ).lstrip("/")
    image = container.get("Image")
    if not NAME.match(name) or not isinstance(image, str) or not IMAGE.match(image):
        return None
    key = f"{inside}/{name}" if inside else name
    return Fact(PROBE, key, " ".join((image, *_ports(container))), EnvPath(os.fsencode(inside or "")))


def _mounted(container: dict[str, Any]) -> Iterator[object]:
    mounts = container.get("Mounts")
    for mount in mounts if isinstance(mounts, list) else ():
        if isinstance(mount, dict) and mount.get("Type") == "bind":
            yield mount.get("Source")


def _ports(container: dict[str, Any]) -> list[str]:
    ports = container.get("Ports")
    public = (
        {port.get("PublicPort") for port in ports if isinstance(port, dict)}
        if isinstance(ports, list)
        else set()
    )
    return [f":{port}" for port in sorted(port for port in public if isinstance(port, int))]


def _inside(path: object, top: str) -> str | None:
    """Return a path relative to the environment; None if it is elsewhere."""
    if not isinstance(path, str) or not (path == top or path.startswith(top.rstrip("/") + "/")):
        return None
    return os.path.normpath(path)[len(top) :].strip("/")


def _socket(target: ProbeTarget) -> str | None:
    host = os.environ.get(HOST_VARIABLE) if target.root == "/" else None
    if host:
        return host.removeprefix(UNIX_SCHEME) if host.startswith(UNIX_SCHEME) else None
    return os.path.join(target.root, SOCKET)


def _ask(path: str | None) -> bytes | None:
    if path is None or not os.path.exists(path):
        return None
    # The module `socket` takes 2 ms to import.
    from _socket import AF_UNIX, SOCK_STREAM, socket  # loaded late: few machines have such a socket

    until = time.monotonic() + SECONDS
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(SECONDS)
        try:
            connection.connect(path)
        except (PermissionError, ConnectionRefusedError, FileNotFoundError):
            return None  # no permission, or no server
        connection.sendall(REQUEST)
        return _receive(connection, until)
    finally:
        connection.close()


def _receive(connection: Any, until: float) -> bytes:
    answer = b""
    while len(answer) < MAX_SIZE:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        more = connection.recv(1 << 16)
        if not more:
            return answer
        answer += more
    raise ValueError("docker's answer is too long")
