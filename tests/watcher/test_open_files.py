"""Files that a process holds open or mapped for writing are found, also if the process was seen before."""

from __future__ import annotations

import mmap
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from git_envhist.platform import Mount
from git_envhist.watcher import open_files
from git_envhist.watcher.file_systems import points_in, why_unwatchable
from git_envhist.watcher.mounted_files import Places, path_in
from git_envhist.watcher.open_files import OpenFiles, OutOfSight
from tests.support.mounts import private_mounts

NOTE_HIDDEN = OpenFiles._note_hidden
"""The method itself; for each test it is replaced."""
HOLD = """
import mmap, sys
file = open(sys.argv[1], sys.argv[2])
if sys.argv[3] == 'mapped':
    kept = mmap.mmap(file.fileno(), 1)
    kept[0] = 50
    file.close()
if sys.argv[3] == 'protected':
    kept = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
    file.close()
if sys.argv[3] == 'thread':
    import ctypes, threading
    def go_on():
        import os, time
        while open('/proc/self/stat').read().rpartition(')')[2].split()[0] != 'Z':
            time.sleep(0.001)
        print('ready', flush=True)
        os.read(0, 1)
        os._exit(0)
    threading.Thread(target=go_on).start()
    ctypes.CDLL(None).syscall(int(sys.argv[4]), 0)
if sys.argv[3] == 'separate':
    import ctypes, threading
    def hold():
        ctypes.CDLL(None).unshare(0x400)
        kept = open(sys.argv[1], sys.argv[2])
        print('ready', flush=True)
        sys.stdin.read()
    file.close()
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
print('ready', flush=True)
sys.stdin.read()
"""


EXIT_THREAD = "60" if platform.machine() == "x86_64" else "93"
"""The number of the system call that ends one thread."""


def held(path: Path, mode: str, how: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    command = [*prefix, sys.executable, "-c", HOLD, str(path), mode, how, EXIT_THREAD]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def found(top: Path, path: str, mode: str, how: str) -> set[bytes]:
    (top / path).parent.mkdir(parents=True, exist_ok=True)
    (top / path).write_text("x")
    files = OpenFiles({b"": os.fsencode(top)})
    assert files.directories() == set()
    process = held(top / path, mode, how)
    try:
        return files.directories()
    finally:
        process.communicate()


def test_file_open_for_writing_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a/b/file", "r+b", "open") == {b"a/b"}


def test_file_open_for_reading_is_not_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a/b/file", "rb", "open") == set()


def test_mapped_file_is_found_after_its_descriptor_was_closed(tmp_path: Path) -> None:
    assert found(tmp_path, "a/file", "r+b", "mapped") == {b"a"}


def test_file_in_a_directory_with_a_line_break_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a\nb/file", "r+b", "mapped") == {b"a\nb"}


def test_mapping_that_is_new_in_a_known_process_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    files = OpenFiles({b"": os.fsencode(tmp_path)})
    files.directories()
    reading, writing = os.pipe()
    ready, told = os.pipe()
    process = os.fork()
    if process == 0:
        os.read(reading, 1)
        with open(tmp_path / "file", "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 1)
        mapped[0] = 50
        os.write(told, b"x")
        os.read(reading, 1)
        os._exit(0)
    assert files.directories() == set()
    os.write(writing, b"x")
    os.read(ready, 1)
    assert files.directories() == {b""}
    os.write(writing, b"x")
    os.waitpid(process, 0)
    assert files.directories() == set()


@pytest.fixture
def seeing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[bytes]]:
    """Look for the files of some processes only, in `top`; raise `OutOfSight` as outside of the tests."""
    monkeypatch.setattr(OpenFiles, "_note_hidden", NOTE_HIDDEN)
    monkeypatch.setattr(open_files, "BLOCK_DEVICES", b"/nonexistent")
    (tmp_path / "top/a").mkdir(parents=True)
    (tmp_path / "top/a/file").write_text("x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("x")

    def look(*pids: int, base: Path = tmp_path / "top") -> set[bytes]:
        processes = tmp_path / "processes"
        processes.mkdir(exist_ok=True)
        for name in ("self", *map(str, pids)):
            with suppress(FileExistsError):
                (processes / name).symlink_to(f"/proc/{name}")
        return OpenFiles({b"": os.fsencode(base)}, str(processes)).directories()

    return look


Look = Callable[..., set[bytes]]


def test_mapping_that_is_read_only_now_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a/file", "r+b", "protected") == {b"a"}


def test_mapped_file_is_found_at_its_new_path_without_a_page_fault(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_text("x")
    files = OpenFiles({b"": os.fsencode(tmp_path)})
    process = held(tmp_path / "a/file", "r+b", "mapped")
    try:
        assert files.directories() == {b"a"}
        (tmp_path / "a").rename(tmp_path / "b")
        assert files.directories() == {b"b"}
    finally:
        process.communicate()


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_file_whose_name_is_gone_is_out_of_sight_while_it_has_another(
    tmp_path: Path, seeing: Look, how: str
) -> None:
    process = held(tmp_path / "outside/file", "r+b", how)
    try:
        os.link(tmp_path / "outside/file", tmp_path / "top/a/other")
        assert seeing(process.pid) == set()
        (tmp_path / "outside/file").unlink()
        with pytest.raises(OutOfSight, match="name is unknown"):
            seeing(process.pid)
        (tmp_path / "top/a/other").unlink()
        if how == "open" or os.geteuid() == 0:
            # Only root can see that a mapped file has no name.
            assert seeing(process.pid) == set()
    finally:
        process.communicate()


def test_file_that_was_created_without_a_name_is_out_of_sight_once_it_is_linked(
    tmp_path: Path, seeing: Look
) -> None:
    descriptor = os.open(tmp_path / "outside", os.O_RDWR | os.O_TMPFILE)
    numbers = os.open("/proc/self/fd", os.O_RDONLY)
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        assert seeing(child) == set()
        # With a directory Python follows the link.
        os.link(str(descriptor), tmp_path / "top/a/linked", src_dir_fd=numbers)
        with pytest.raises(OutOfSight):
            seeing(child)
    finally:
        os.close(descriptor)
        os.close(numbers)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_file_behind_a_bind_mount_is_found(tmp_path: Path, seeing: Look, how: str) -> None:
    with private_mounts() as mounts:
        mounts.mount("--bind", tmp_path / "top/a", tmp_path / "outside")
        process = held(tmp_path / "outside/file", "r+b", how, mounts.inside(tmp_path))
        try:
            assert seeing(process.pid) == {b"a"}
            look = "import sys; from git_envhist.watcher.open_files import OpenFiles\n"
            look += "print(OpenFiles({b'': sys.argv[1].encode()}, sys.argv[2]).directories())"
            where = (tmp_path / "top", tmp_path / "processes")
            assert mounts.run(sys.executable, "-c", look, *where).stdout == b"{b'a'}\n"
        finally:
            process.communicate()


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_file_of_another_namespace_outside_of_the_environment_is_no_doubt(
    tmp_path: Path, seeing: Look, how: str
) -> None:
    (tmp_path / "place").mkdir()
    with private_mounts() as mounts:
        mounts.mount("--bind", tmp_path / "outside", tmp_path / "place")
        process = held(tmp_path / "place/file", "r+b", how, mounts.inside(tmp_path))
        try:
            assert seeing(process.pid) == set()
        finally:
            process.communicate()


def test_file_of_a_detached_mount_is_out_of_sight(tmp_path: Path, seeing: Look) -> None:
    (tmp_path / "place").mkdir()
    with private_mounts() as mounts:
        mounts.mount("--bind", tmp_path / "top/a", tmp_path / "place")
        process = held(tmp_path / "place/file", "r+b", "open", mounts.inside(tmp_path))
        try:
            mounts.run("umount", "--lazy", tmp_path / "place")
            with pytest.raises(OutOfSight):
                seeing(process.pid)
        finally:
            process.communicate()


def test_files_of_a_process_whose_main_thread_ended_are_found(tmp_path: Path, seeing: Look) -> None:
    process = held(tmp_path / "top/a/file", "r+b", "thread")
    try:
        assert seeing(process.pid) == {b"a"}
    finally:
        process.communicate()


def test_files_of_a_thread_with_descriptors_of_its_own_are_found(tmp_path: Path, seeing: Look) -> None:
    process = held(tmp_path / "top/a/file", "r+b", "separate")
    try:
        assert seeing(process.pid) == {b"a"}
    finally:
        process.communicate()


@pytest.mark.parametrize(("upper", "is_hidden"), [("top/upper", True), ("outside", False)])
def test_overlay_that_writes_into_the_environment_is_out_of_sight(
    tmp_path: Path, seeing: Look, upper: str, is_hidden: bool
) -> None:
    for name in ("top/upper", "work", "place"):
        (tmp_path / name).mkdir()
    lower, work = tmp_path / "top/a", tmp_path / "work"
    options = f"lowerdir={lower},upperdir={tmp_path / upper},workdir={work}"
    with private_mounts() as mounts:
        mounts.mount("-t", "overlay", "overlay", "-o", options, tmp_path / "place")
        with pytest.raises(OutOfSight, match="overlay") if is_hidden else nullcontext():
            assert seeing(mounts.holder.pid) == set()


def test_process_that_cannot_be_read_for_another_reason_is_out_of_sight(tmp_path: Path, seeing: Look) -> None:
    assert seeing() == set()
    # Reading a directory fails as a lack of memory does: not because the process ended or belongs to another user.
    (tmp_path / "processes/1/stat").mkdir(parents=True)
    with pytest.raises(OutOfSight, match="cannot be listed"):
        seeing()


def test_root_of_the_file_system_can_be_a_base() -> None:
    mounts = [
        Mount(b"1", b"0", b"/", b"8:1", b"/", b"ext4"),
        Mount(b"2", b"1", b"/srv", b"8:1", b"/data", b"ext4"),
    ]
    places = Places({b"": b"/"}, mounts)
    assert path_in(mounts[1], b"/srv/x/file") == b"/data/x/file"
    assert places.directory_of(b"8:1", b"/data/x/file") == b"data/x"
    assert places.directory_of(b"8:1", b"/file") == b""
    assert places.directory_of(b"8:2", b"/file") is None


@pytest.mark.parametrize("modes", [b"rw-s", b"-w-s", b"rwxs", b"-wxs"])
def test_mapping_of_each_mode_is_read(modes: bytes) -> None:
    line = b"7f00-7f01 %b 00000000 08:01 12   /a/b c\n" % modes
    assert open_files.SHARED.findall(line)[0][2:] == (modes[:3], b"08", b"01", b"12", b"/a/b c")


def test_local_directory_can_be_watched(tmp_path: Path) -> None:
    assert why_unwatchable({b"": os.fsencode(tmp_path)}) == ""
    assert points_in([os.fsencode(tmp_path)]) == points_in([os.fsencode(tmp_path)])


def test_nested_roots_cannot_be_watched(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    bases = {b"": os.fsencode(tmp_path), b"more": os.fsencode(tmp_path / "inside")}
    assert why_unwatchable(bases) == "one root of the environment contains another"


def test_file_system_of_another_kind_cannot_be_watched() -> None:
    assert "'proc'" in why_unwatchable({b"": b"/proc/sys"})
