"""Work in a container of docker or podman, whichever is available; checkpoints are images of the container.

A restore replaces the container by one with the same name, mounts, ports and networks. The old container is saved as
an image first. Mounted data is not part of an image and is not changed.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from git_envhist.compat.chimera.storage import (
    CheckpointInfo,
    CommandResult,
    PathEscapes,
    TestResult,
    errors_as_os_errors,
    read_test_output,
)
from git_envhist.compat.storage import read_json, write_json
from git_envhist.directories_of_others import refuse_others_directory
from git_envhist.discovery import COMPAT, own_data
from git_envhist.disk import state_directory
from git_envhist.locks import locked

TOOLS = ("docker", "podman")
BEFORE = "before"


class ContainerToolMissing(OSError):
    """Neither docker nor podman is available."""


class ContainerEnvironment:
    """A container, identified by its name."""

    def __init__(
        self,
        container: str,
        workdir: str = "/workspace",
        test_cmd: str = "python -m pytest",
        timeout: int = 300,
        *,
        image: str | None = None,
        tool: Sequence[str] | None = None,
    ) -> None:
        """`image` is used by `setup` to create the container if there is none with this name."""
        self.container = container
        self.workdir = workdir
        self.test_cmd = test_cmd
        self.timeout = timeout
        self.saved: str | None = None
        """The image of the container before the last restore."""
        self._image = image
        self._tool = list(tool) if tool is not None else find_tool()

    def setup(self) -> None:
        """Create and start the container if there is none with this name."""
        self._finish_interrupted_restore()
        if self._image is not None and self._ask("container", "inspect", self.container).exit_code != 0:
            self._run(
                "create", "--name", self.container, "-w", self.workdir, self._image, "sleep", "infinity"
            )
            self._run("start", self.container)

    def cleanup(self) -> None:
        """Do nothing: the container keeps running."""

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def read_file(self, path: str) -> str:
        """Return the text of a file in the working directory."""
        try:
            archive = self._bytes("cp", f"{self.container}:{self._place(path)}", "-")
        except OSError:
            raise FileNotFoundError(f"File not found: {path}") from None
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            member = files.next()
            content = files.extractfile(member) if member is not None and member.isfile() else None
            if content is None:
                raise FileNotFoundError(f"File not found: {path}")
            return content.read().decode()

    def write_file(self, path: str, content: str) -> None:
        """Write a file, and create its directories."""
        place = self._place(path)
        data = content.encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as files:
            member = tarfile.TarInfo(place.lstrip("/"))
            member.size, member.mode = len(data), 0o644
            files.addfile(member, io.BytesIO(data))
        self._bytes("cp", "-", f"{self.container}:/", given=archive.getvalue())

    def list_files(self, pattern: str = "**/*") -> list[str]:
        """Return the files that match a pattern, as paths below the working directory."""
        archive = self._bytes("cp", f"{self.container}:{self.workdir}/.", "-")
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            names = [posixpath.normpath(member.name) for member in files if member.isfile()]
        wanted = re.compile(_translate(pattern))
        return sorted(name for name in names if wanted.fullmatch(name))

    def run_command(self, cmd: str, timeout: int | None = None, shell_name: str = "main") -> CommandResult:
        """Run a shell command in the container."""
        words = ("exec", "-w", self.workdir, self.container, "sh", "-c", cmd)
        try:
            return self._ask(*words, timeout=timeout or self.timeout)
        except subprocess.TimeoutExpired:
            return CommandResult("", "Command timed out", 124)

    def run_tests(self) -> TestResult:
        """Run the tests and count the results."""
        return read_test_output(self.run_command(self.test_cmd))

    def checkpoint(self) -> str:
        """Save the container as an image; return its id."""
        return self._run("commit", self.container).removeprefix("sha256:")

    def restore(self, checkpoint_id: str) -> None:
        """Replace the container by one created from a checkpoint."""
        if self._ask("image", "inspect", checkpoint_id).exit_code != 0:
            raise ValueError(f"Checkpoint {checkpoint_id} not found")
        self._finish_interrupted_restore()
        found = json.loads(self._run("container", "inspect", self.container))[0]
        self.saved = self.checkpoint()
        old = f"{self.container}-{BEFORE}-{os.urandom(3).hex()}"
        running = bool(found["State"].get("Running"))
        if running:
            self._run("stop", "-t", "5", self.container)
        self._run("rename", self.container, old)
        try:
            self._run(
                "create",
                "--name",
                self.container,
                *_same_options(found),
                checkpoint_id,
                *_command(found),
            )
            if running:
                self._run("start", self.container)
        except OSError:
            with suppress(OSError):
                self._run("rm", "-f", self.container)
            self._run("rename", old, self.container)
            if running:
                self._run("start", self.container)
            raise
        self._run("rm", "-f", old)

    def _finish_interrupted_restore(self) -> None:
        """A process that was killed during a restore left the container under another name; rename it back."""
        if self._ask("container", "inspect", self.container).exit_code == 0:
            return
        names = self._run("ps", "-a", "--format", "{{.Names}}").split()
        left = [
            name
            for name in names
            if re.fullmatch(f"{re.escape(self.container)}-{BEFORE}-[0-9a-f]{{6}}", name)
        ]
        if len(left) == 1:
            self._run("rename", left[0], self.container)

    def label(self, info: CheckpointInfo) -> None:
        """Store the name of a checkpoint."""
        with self._locked():
            self._write([*self.labels(), info])

    def labels(self) -> list[CheckpointInfo]:
        """Return the named checkpoints, oldest first."""
        nothing: list[CheckpointInfo] = []
        with errors_as_os_errors():
            return read_json(self._labels_file, _read_labels, nothing)

    def remove_labels(self) -> None:
        """Delete the names; the images are kept."""
        with self._locked():
            self._write([])

    @property
    def _labels_file(self) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", self.container)
        return os.path.join(own_data(os.environ), COMPAT, "chimera-containers", f"{name}.json")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with errors_as_os_errors():
            refuse_others_directory(self._labels_file)
            state_directory(os.path.dirname(self._labels_file))
            with locked(f"{self._labels_file}.lock"):
                yield

    def _write(self, every: Sequence[CheckpointInfo]) -> None:
        write_json(self._labels_file, [vars(info) for info in every])

    def _place(self, path: str) -> str:
        place = posixpath.normpath(posixpath.join(self.workdir, path))
        if not place.startswith(self.workdir.rstrip("/") + "/"):
            raise PathEscapes(path)
        return place

    def _ask(self, *words: str, timeout: float | None = None) -> CommandResult:
        done = subprocess.run([*self._tool, *words], capture_output=True, timeout=timeout, check=False)
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        return CommandResult(out, err, done.returncode)

    def _run(self, *words: str) -> str:
        return self._bytes(*words).decode("utf-8", "replace").strip()

    def _bytes(self, *words: str, given: bytes | None = None) -> bytes:
        done = subprocess.run([*self._tool, *words], input=given, capture_output=True, check=False)
        if done.returncode != 0:
            raise OSError(f"{self._tool[0]} {words[0]}: {done.stderr.decode('utf-8', 'replace').strip()}")
        return done.stdout


def find_tool() -> list[str]:
    """Return the command of docker or podman; raises `ContainerToolMissing` if neither is available."""
    for tool in TOOLS:
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run([tool, "info"], capture_output=True, timeout=20, check=False)
            if done.returncode == 0 and b"ERROR:" not in done.stdout + done.stderr:
                return [tool]
    raise ContainerToolMissing("neither docker nor podman answers")


def _read_labels(values: list[dict[str, Any]]) -> list[CheckpointInfo]:
    return [CheckpointInfo(**one) for one in values]


def _same_options(found: dict[str, Any]) -> list[str]:
    """Return the options that give a new container the same connections to the outside."""
    host, config = found.get("HostConfig") or {}, found.get("Config") or {}
    words = [*_mounts(found), *_limits(host)]
    for port, places in (host.get("PortBindings") or {}).items():
        for place in places or ():
            outside = ":".join(part for part in (place.get("HostIp"), place.get("HostPort")) if part)
            words += ["-p", f"{outside}:{port}" if outside else port]
    network = host.get("NetworkMode")
    if network and network not in ("default", "bridge"):
        words += ["--network", network]
    if config.get("Hostname") and not str(found.get("Id")).startswith(config["Hostname"]):
        words += ["--hostname", config["Hostname"]]
    if config.get("WorkingDir"):
        words += ["-w", config["WorkingDir"]]
    return [*words, *_resource_options(host)]


def _mounts(found: dict[str, Any]) -> list[str]:
    """Return the mounts by kind: directories of this machine, and named or anonymous volumes."""
    host = found.get("HostConfig") or {}
    binds = list(host.get("Binds") or ())
    places = {bind.split(":")[1] for bind in binds if ":" in bind}
    for mount in found.get("Mounts") or ():
        source = mount.get("Name") if mount.get("Type") == "volume" else mount.get("Source")
        if mount.get("Type") in ("bind", "volume") and source and mount["Destination"] not in places:
            binds.append(f"{source}:{mount['Destination']}" + ("" if mount.get("RW", True) else ":ro"))
    words = [word for bind in binds for word in ("-v", bind)]
    for place, options in (host.get("Tmpfs") or {}).items():
        words += ["--tmpfs", f"{place}:{options}" if options else place]
    return words


def _limits(host: dict[str, Any]) -> list[str]:
    words = []
    for key, option in (("Memory", "--memory"), ("CpuShares", "--cpu-shares"), ("PidsLimit", "--pids-limit")):
        if (host.get(key) or 0) > 0:
            words += [option, str(host[key])]
    if host.get("NanoCpus"):
        words += ["--cpus", f"{host['NanoCpus'] / 1e9:g}"]
    return words


def _resource_options(host: dict[str, Any]) -> list[str]:
    """Return the permissions and resource limits."""
    words = [*["--privileged"] * bool(host.get("Privileged")), *["--init"] * bool(host.get("Init"))]
    for key, option in (("CapAdd", "--cap-add"), ("CapDrop", "--cap-drop"), ("ExtraHosts", "--add-host")):
        words += [word for value in host.get(key) or () for word in (option, value)]
    for limit in host.get("Ulimits") or ():
        name = str(limit["Name"]).lower().removeprefix("rlimit_")
        words += ["--ulimit", f"{name}={limit['Soft']}:{limit['Hard']}"]
    again = (host.get("RestartPolicy") or {}).get("Name")
    if again and again != "no":
        words += ["--restart", again]
    return words


def _command(found: dict[str, Any]) -> list[str]:
    return list((found.get("Config") or {}).get("Cmd") or ())


def _translate(pattern: str) -> str:
    # `**/` matches any number of directories, including none; a star does not match a slash.
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meant.get(part, re.escape(part)) for part in parts)
