"""The browser at the other end of a real ssh: each key, a restore and its undo, a lost connection, a kill."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.servers import ssh_server
from tests.support.needs import needs
from tests.support.repository import Repo
from tests.tui.screen import Screen, wait_until_gone
from tests.tui.test_terminal import LARGE, SMALL, cursor

pytestmark = needs("tmux")

Enter = Callable[[tuple[int, int]], Screen]


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as command:
        yield command


@pytest.fixture
def shop(repo: Repo) -> Repo:
    """Fill an environment: Python files, packages, secrets, and a name that cannot be typed."""
    repo.write(".gitignore", ".venv/\n.env\n")
    repo.execute("python3", "-m", "venv", "--without-pip", ".venv")
    repo.write(".env", "A=1\n")
    repo.run("envlog", "capture", "clean", "--verify", "true", check=True)
    site = next((repo.path / ".venv/lib").iterdir()) / "site-packages"
    repo.write(
        f"{site.relative_to(repo.path)}/left_pad-1.0.dist-info/METADATA", "Name: left-pad\nVersion: 1.0\n"
    )
    repo.write("app.py", "print('works')\n")
    repo.write("[bold]\x1b[31mred\u202e", "x")
    repo.run("envlog", "capture", "with left-pad", "--verify", "false", check=True)
    return repo


@pytest.fixture
def enter(shop: Repo, ssh: str, tmp_path: Path) -> Iterator[Enter]:
    """Return a function that connects by ssh and starts the browser; the id of its process is written to a file."""
    env = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in shop.env.items() if name != "TERM"
    )
    script = tmp_path / "enter.sh"
    script.write_text(
        f"{env}\ncd {shlex.quote(str(shop.path))}\necho $$ >{tmp_path}/process\nexec git-envlog browse\n"
    )
    opened: list[Screen] = []

    def enter_it(size: tuple[int, int]) -> Screen:
        words = f"{ssh} -t loopback sh {script}"
        opened.append(Screen(shop.path, words, shop.env, *size, f"envhist-{uuid.uuid4().hex[:12]}"))
        return opened[-1]

    yield enter_it
    for screen in opened:
        screen.close()


def there(tmp_path: Path) -> int:
    return int((tmp_path / "process").read_text())


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_every_key_works_over_ssh(shop: Repo, enter: Enter, size: tuple[int, int]) -> None:
    screen = enter(size)
    shown = screen.see("2 snapshots", "left-pad 1.0", "~ app.py", r"[bold]\x1b[31mred\u202e")
    assert all(len(line) <= size[0] for line in shown.split("\n"))
    first, second = shop.run("envlog", "--format=%h", "--reverse", check=True).out.split()
    screen.type("j")
    screen.wait(lambda shown: "clean" in cursor(shown))
    screen.type("k", "/")
    screen.write("CLEAN")
    screen.see("1 of 2 snapshots")
    screen.type("Escape")
    screen.see("· 2 snapshots")
    screen.type("g", "d", "G", "d")
    screen.see(f"from {first} to {second}", "left-pad 1.0")
    screen.type("?")
    screen.see("mark this snapshot")
    screen.type("Escape")
    # A key sent right after Escape would be a key with Alt.
    screen.wait(lambda shown: "mark this snapshot" not in shown)
    screen.type("r")
    screen.see("Enter confirms", "app.py", r"[bold]\x1b[31mred\u202e", "remove")
    screen.type("Enter")
    screen.see("restored in", "to go back: git envrestore --undo")
    assert shop.read("app.py") == b"print('hello')\n"
    assert not (shop.path / "[bold]\x1b[31mred\u202e").exists()
    screen.type("Enter", "u")
    screen.see("undo the last restore", "Enter confirms")
    screen.resize(120, 30)
    screen.type("Enter")
    screen.see("restored in", "git envrestore --redo")
    assert shop.read("app.py") == b"print('works')\n"
    screen.type("Enter", "U")
    screen.see("redo the last undo", "Enter confirms")
    screen.type("Escape")
    screen.wait(lambda shown: "Enter confirms" not in shown)
    screen.type("q")
    screen.see("ended with 0")


def test_lost_connection_ends_the_browser(enter: Enter, tmp_path: Path) -> None:
    screen = enter(SMALL)
    screen.see("2 snapshots", "~ app.py")
    program = there(tmp_path)
    os.kill(screen.program(), signal.SIGKILL)
    wait_until_gone(program)


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_restore_finishes_without_the_browser(shop: Repo, enter: Enter, tmp_path: Path, how: str) -> None:
    """Kill the browser or close its terminal during a restore: the restore continues to its end."""
    screen = enter(SMALL)
    screen.see("2 snapshots", "~ app.py")
    screen.type("G", "r")
    screen.see("Enter confirms")
    program = there(tmp_path)
    with (shop.path / ".git/envhist/lock").open("rb") as lock:
        # The restore waits until this lock is released.
        fcntl.flock(lock, fcntl.LOCK_EX)
        screen.type("Enter")
        screen.wait(lambda shown: bool(restores(program)))
        (restore,) = restores(program)
        if how == "killed":
            os.kill(program, signal.SIGKILL)
        else:
            screen.close()
        wait_until_gone(program)
        assert shop.read("app.py") == b"print('works')\n"
    wait_until_gone(restore)
    assert shop.read("app.py") == b"print('hello')\n"
    assert shop.run("envrestore", "--continue").status == 3
    assert shop.run("envdiff", "--exit-code", "@").status == 0
    assert shop.run("envrestore", "--undo").status == 0
    assert shop.read("app.py") == b"print('works')\n"


def restores(program: int) -> list[int]:
    """Return the ids of the restore processes that the browser started."""
    words = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(program)]
    output = subprocess.run(words, capture_output=True, check=False, text=True).stdout
    return [int(line.split()[0]) for line in output.splitlines() if "envrestore" in line]
