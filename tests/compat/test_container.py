"""Restore of containers with podman and docker: a created container and a running one."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from git_envhist.compat.chimera.checkpoints import CheckpointManager
from git_envhist.compat.chimera.env.container import ContainerEnvironment, ContainerToolMissing, find_tool
from tests.support.needs import require, skip_without


@pytest.fixture
def podman() -> Iterator[list[str]]:
    """Return the first words of a podman command with a separate store; skip the test if podman cannot run."""
    # podman refuses paths longer than about 50 characters.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        words = ["podman", "--root", f"{place}/store", "--runroot", f"{place}/run", "--storage-driver", "vfs"]
        require("podman")
        done = subprocess.run([*words, "info"], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"podman cannot run here: {done.stderr.decode()[-200:]}")
        yield words


@pytest.fixture
def container(podman: list[str], tmp_path: Path) -> Iterator[ContainerEnvironment]:
    """Create a container from an image with one file."""
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


def test_restore_replaces_the_container_under_its_name(
    container: ContainerEnvironment, podman: list[str]
) -> None:
    manager = CheckpointManager(container)
    manager.create("clean")
    container.write_file("app.py", "two\n")
    container.write_file("deep/er/new.txt", "new\n")
    assert container.list_files("**/*.txt") == ["deep/er/new.txt"]
    # A second manager, as in another process, finds the checkpoint by its name.
    CheckpointManager(ContainerEnvironment("box", tool=podman)).restore_by_name("clean")
    assert container.list_files() == ["app.py"]
    assert container.read_file("app.py") == "one\n"
    told = "{{.Config.Cmd}} {{.HostConfig.NetworkMode}} {{.Config.WorkingDir}}"
    seen = subprocess.run(
        [*podman, "inspect", "box", "--format", told], capture_output=True, text=True, check=True
    )
    assert seen.stdout == "[/app wait] none /workspace\n"


def test_restore_saves_the_old_container_as_an_image(container: ContainerEnvironment) -> None:
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


@pytest.fixture(scope="module")
def docker() -> Iterator[list[str]]:
    """Return the first words of a docker command with a separate daemon; skip the test if none can run."""
    daemon = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    if daemon is None or shutil.which("docker") is None:
        skip_without("dockerd")
    if os.geteuid() != 0:
        pytest.skip("only root can run a docker daemon")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        words = ["docker", "-H", f"unix://{place}/socket"]
        apart = [
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ]
        kept = ["--data-root", f"{place}/data", "--exec-root", f"{place}/exec", "--pidfile", f"{place}/pid"]
        with open(f"{place}/log", "w+b") as log:
            begin = [daemon, "-H", f"unix://{place}/socket", "--storage-driver=vfs", *apart, *kept]
            running = subprocess.Popen(begin, stdout=log, stderr=log)
            try:
                while subprocess.run([*words, "info"], capture_output=True, check=False).returncode != 0:
                    with suppress(subprocess.TimeoutExpired):
                        running.wait(0.2)
                        log.seek(0)
                        pytest.skip(f"no docker daemon can run here: {os.fsdecode(log.read())[-200:]}")
                yield words
            finally:
                running.terminate()
                running.wait()


HEEDING = "trap exit TERM; while :; do sleep 1000 & wait; done"
"""A first process that ends on SIGTERM."""
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
"""Limits low enough for the user who runs the tests."""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Create an image with a shell."""
    busybox = require("busybox")
    image = tmp_path / "image.tar"
    with tarfile.open(image, "w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "cat", "sleep", "test", "rm", "mkdir"):
            member = tarfile.TarInfo(f"bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(member)
        directory = tarfile.TarInfo("workspace")
        directory.type, directory.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(directory)
    return image


@pytest.fixture(params=["podman", "docker"])
def running(request: pytest.FixtureRequest, small: Path, tmp_path: Path) -> Iterator[ContainerEnvironment]:
    """Start a container with mounts of every kind; skip the test with the reason if none can run."""
    words: list[str] = request.getfixturevalue(request.param)
    subprocess.run([*words, "import", str(small), "small"], capture_output=True, check=True)
    (tmp_path / "bound").mkdir()
    bound = f"type=bind,source={tmp_path}/bound,destination=/bound"
    mounted = ["--mount", bound, "--mount", "type=volume,source=named,destination=/named", "-v", "/nameless"]
    run = ["run", "-d", *mounted, "--name", "box", "--network", "none", "-w", "/workspace", *LIMITS, "small"]
    runtimes = filter(shutil.which, ("crun", "runc"))
    ways = [words] if request.param == "docker" else [[*words, "--runtime", runtime] for runtime in runtimes]
    why = b"no runtime"
    for tool in ways:
        done = subprocess.run([*tool, *run, "sh", "-c", HEEDING], capture_output=True, check=False)
        if done.returncode == 0:
            yield ContainerEnvironment("box", test_cmd="test -f app.py && echo 1 passed", tool=tool)
            subprocess.run([*tool, "rm", "-f", "-v", "box"], capture_output=True, check=True)
            return
        why = done.stderr.strip()
        subprocess.run([*tool, "rm", "-f", "box"], capture_output=True, check=False)
    pytest.skip(f"no container can run here: {os.fsdecode(why)}")


def test_running_container_is_running_again_after_a_restore(running: ContainerEnvironment) -> None:
    assert running.run_command("echo one > app.py; mkdir deep; echo x > deep/file").success
    assert running.run_command("for at in bound named nameless; do echo mine > /$at/x; done").success
    clean = running.checkpoint()
    assert running.run_command("echo two > app.py; cat deep/file").stdout == "x\n"
    assert running.run_command("rm -r deep; exit 3").exit_code == 3
    running.restore(clean)
    # The container runs with its limits and has the checkpoint's files.
    assert running.run_command("cat app.py deep/file; ulimit -n").stdout == "one\nx\n1024\n"
    assert running.run_command("cat /bound/x /named/x /nameless/x").stdout == "mine\nmine\nmine\n"
    assert running.run_tests().passed == 1
    assert running.saved is not None
    running.restore(running.saved)
    assert running.run_command("cat app.py; test -e deep").stdout == "two\n"
    # A restore killed between the rename of the old container and the start of the new one: the next restore finds it.
    tool = running._tool
    subprocess.run([*tool, "rename", "box", "box-before-0a1b2c"], capture_output=True, check=True)
    running.restore(clean)
    assert running.run_command("cat app.py /nameless/x").stdout == "one\nmine\n"
    names = subprocess.run([*tool, "ps", "-a", "--format", "{{.Names}}"], capture_output=True, check=True)
    assert names.stdout == b"box\n"


def test_missing_docker_and_podman_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ContainerToolMissing, match="neither docker nor podman answers"):
        find_tool()
