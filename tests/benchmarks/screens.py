"""Pictures of real programs: an X server without a display, a terminal in it, and ImageMagick takes the picture.

Needs Xvfb, xterm, tmux and ImageMagick.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT = 956, 556
COLUMNS, LINES = 118, 32
# Without antialiasing, the picture is a tenth as large.
FONT, FONT_SIZE = "DejaVu Sans Mono:antialias=false", "10"
LARGEST = 150_000
SETTLED = 1.2
PATIENCE = 30


@dataclass(frozen=True)
class Screen:
    """A private X server."""

    display: str

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DISPLAY": self.display}

    def picture(self, place: Path) -> None:
        """Save what the screen shows, with few colours and as a small file."""
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["import", "-display", self.display, "-window", "root", "-strip", "+dither", "-colors", "24",
             "-define", "png:compression-level=9", str(place)],
            check=True,
        )  # fmt: skip
        if place.stat().st_size > LARGEST:
            raise SystemExit(f"'{place}' is too large for a page: {place.stat().st_size} bytes")


@contextmanager
def screen() -> Iterator[Screen]:
    """Run a private X server during the block."""
    reading, writing = os.pipe()
    words = ["Xvfb", "-displayfd", str(writing), "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-nolisten", "tcp"]
    server = subprocess.Popen(words, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with os.fdopen(reading) as file:
            yield Screen(f":{file.readline().strip()}")
    finally:
        server.terminate()
        server.wait()


def show_window(
    on: Screen, top: Path, words: Sequence[str], place: Path, *, wait: float, environment: Mapping[str, str]
) -> None:
    """Run a program with its own window, and take its picture."""
    program = subprocess.Popen(
        words,
        cwd=top,
        env={**on.environment, **environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(wait)
        on.picture(place)
    finally:
        program.terminate()
        program.wait()


def show_terminal(on: Screen, top: Path, command: str, place: Path, keys: Sequence[str] = ()) -> None:
    """Run a command in a terminal, press keys, and take its picture."""
    tmux = ["tmux", "-f", os.devnull, "-L", f"picture-{os.getpid()}-{place.stem}"]
    # When a command ends, its last screen stays for the picture.
    session = [*tmux, "new-session", "-s", "picture", f"{command}; sleep 60", ";", "set", "status", "off"]
    words = ["xterm", "-fa", FONT, "-fs", FONT_SIZE, "-geometry", f"{COLUMNS}x{LINES}+0+0", "-b", "6", "+sb",
             "-bg", "#16181d", "-fg", "#dcdcdc", "-xrm", "XTerm*color4: #5f87d7", "-e", *session]  # fmt: skip
    environment = on.environment | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    terminal = subprocess.Popen(words, cwd=top, env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait_for_text([*tmux, "capture-pane", "-p", "-t", "picture"])
        for key in keys:
            subprocess.run([*tmux, "send-keys", "-t", "picture", key], check=True)
            time.sleep(SETTLED)
        on.picture(place)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, stderr=subprocess.DEVNULL)
        terminal.terminate()
        terminal.wait()


def _wait_for_text(look: Sequence[str]) -> None:
    """Wait until the terminal shows text that no longer changes."""
    before, until = "", time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(SETTLED)
        seen = subprocess.run(look, check=False, capture_output=True, text=True).stdout
        if seen.strip() and seen == before:
            return
        before = seen
    raise SystemExit("the terminal stayed empty, or never stopped changing")
