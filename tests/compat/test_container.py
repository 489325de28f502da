"""A container that is brought back, by podman; it need not run for that."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.compat.chimera import CheckpointManager, ContainerEnvironment
from git_envhist.compat.chimera.env.container import NoContainers, find_tool


@pytest.fixture
def podman() -> Iterator[list[str]]:
    """The words that begin a command of podman, with a store of its own; it skips where podman cannot be had."""
    # A longer path than some 50 letters is none for podman.
    with tempfile.TemporaryDirectory() as place:
        words = ["podman", "--root", f"{place}/store", "--runroot", f"{place}/run", "--storage-driver", "vfs"]
        try:
            subprocess.run([*words, "info"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("podman cannot be had")
        yield words


@pytest.fixture
def container(podman: list[str], tmp_path: Path) -> Iterator[ContainerEnvironment]:
    """A container of an image with one file."""
    image = tmp_path / "image.tar"
    with tarfile.open(image, "w") as archive:
        member = tarfile.TarInfo("workspace/app.py")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"one\n"))
    subprocess.run([*podman, "import", str(image), "small"], capture_output=True, check=True)
    create = ["create", "--name", "box", "--network", "none", "-w", "/workspace", "small", "/app", "wait"]
    subprocess.run([*podman, *create], capture_output=True, check=True)
    yield ContainerEnvironment("box", tool=podman)
    subprocess.run([*podman, "rm", "-f", "-a"], capture_output=True, check=True)


def test_a_container_comes_back_under_its_name(container: ContainerEnvironment, podman: list[str]) -> None:
    manager = CheckpointManager(container)
    manager.create("clean")
    container.write_file("app.py", "two\n")
    container.write_file("deep/er/new.txt", "new\n")
    assert container.list_files("**/*.txt") == ["deep/er/new.txt"]
    # Another manager, as in another process, knows it by its name.
    CheckpointManager(ContainerEnvironment("box", tool=podman)).restore_by_name("clean")
    assert container.list_files() == ["app.py"]
    assert container.read_file("app.py") == "one\n"
    told = "{{.Config.Cmd}} {{.HostConfig.NetworkMode}} {{.Config.WorkingDir}}"
    seen = subprocess.run(
        [*podman, "inspect", "box", "--format", told], capture_output=True, text=True, check=True
    )
    assert seen.stdout == "[/app wait] none /workspace\n"


def test_what_was_in_it_is_an_image_first(container: ContainerEnvironment) -> None:
    clean = container.checkpoint()
    container.write_file("new.txt", "new\n")
    container.restore(clean)
    assert container.saved is not None
    container.restore(container.saved)
    assert container.read_file("new.txt") == "new\n"
    with pytest.raises(ValueError, match="Checkpoint ffff not found"):
        container.restore("ffff")
    with pytest.raises(FileNotFoundError):
        container.read_file("nothing")
    with pytest.raises(PermissionError, match="Path escapes workdir"):
        container.write_file("../x", "x")


def test_without_docker_and_podman_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoContainers, match="neither docker nor podman answers"):
        find_tool()
