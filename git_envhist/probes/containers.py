"""The containers that belong to an environment, where docker answers: those that its compose files describe, and those
that see a directory of it.

Docker is asked over its socket, as its own program asks it, and has a moment to answer. Where there is no such socket,
or it is not ours to open, nothing is known. Which containers there are is the stamp: they are few, and told at once.
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
LED_TO, BY_PATH = "DOCKER_HOST", "unix://"
SECONDS = 0.3
MAX_SIZE = 16 << 20
QUESTION = b"GET /containers/json HTTP/1.0\r\nHost: docker\r\n\r\n"
COMPOSED_IN = "com.docker.compose.project.working_dir"
COMPOSED_AS = "com.docker.compose.service"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}\Z")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,200}\Z")


def stamp(place: ProbeTarget) -> str | None:
    """Which containers of the environment run, as a hash of all that is told of them."""
    answer = _ask(_socket(place))
    if answer is None:
        return None
    told = "\0".join(f"{fact.key} {fact.value}" for fact in parse(answer, os.path.realpath(place.top)))
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()


def facts_of(place: ProbeTarget, keyed: Keyed) -> Iterator[Fact]:
    """Every one of them: the name, the image, the ports at which this machine reaches it."""
    answer = _ask(_socket(place))
    if answer is not None:
        yield from parse(answer, os.path.realpath(place.top))


def parse(answer: bytes, top: str) -> list[Fact]:
    """What docker's list says of an environment; an error where it is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError(f"docker said: {head[:80]!r}")
    containers = json.loads(body)
    if not isinstance(containers, list):
        raise ValueError("docker's list is none")
    found = (_tell(one, top) for one in containers if isinstance(one, dict))
    return sorted((fact for fact in found if fact is not None), key=lambda fact: (fact.key, fact.value))


def _tell(container: dict[str, Any], top: str) -> Fact | None:
    labels = container.get("Labels")
    labels = labels if isinstance(labels, dict) else {}
    inside = _inside(labels.get(COMPOSED_IN), top)
    if inside is None and not any(_inside(path, top) is not None for path in _mounted(container)):
        return None
    names = container.get("Names")
    first = names[0] if isinstance(names, list) and names else ""
    name = next((one for one in (labels.get(COMPOSED_AS), first) if isinstance(one, str) and one), "").lstrip(
        "/"
    )
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
    """A path as seen from the top of the environment; None where it lies elsewhere."""
    if not isinstance(path, str) or not (path == top or path.startswith(top.rstrip("/") + "/")):
        return None
    return os.path.normpath(path)[len(top) :].strip("/")


def _socket(place: ProbeTarget) -> str | None:
    led_to = os.environ.get(LED_TO) if place.root == "/" else None
    if led_to:
        return led_to.removeprefix(BY_PATH) if led_to.startswith(BY_PATH) else None
    return os.path.join(place.root, SOCKET)


def _ask(path: str | None) -> bytes | None:
    if path is None or not os.path.exists(path):
        return None
    # `socket` itself brings 2 ms of names along.
    from _socket import AF_UNIX, SOCK_STREAM, socket  # loaded late: few machines have such a socket

    until = time.monotonic() + SECONDS
    asking = socket(AF_UNIX, SOCK_STREAM)
    try:
        asking.settimeout(SECONDS)
        try:
            asking.connect(path)
        except (PermissionError, ConnectionRefusedError, FileNotFoundError):
            return None  # not ours to ask, or nobody there
        asking.sendall(QUESTION)
        return _receive(asking, until)
    finally:
        asking.close()


def _receive(asking: Any, until: float) -> bytes:
    answer = b""
    while len(answer) < MAX_SIZE:
        asking.settimeout(max(until - time.monotonic(), 0.001))
        more = asking.recv(1 << 16)
        if not more:
            return answer
        answer += more
    raise ValueError("docker's list does not end")
