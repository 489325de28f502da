"""Draw docs/pictures/session.svg: a recorded session of the real programs, as an animation.

`python docs/pictures/session.py` runs the commands of STEPS on a pseudo-terminal and writes the picture. A test
runs them again and compares the output with the text of the picture (tests/docs/test_session_picture.py).
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import sealed_environment
from tests.support.programs import make_programs

PICTURE = Path(__file__).with_name("session.svg")
COLUMNS, ROWS = 96, 25
TYPING = 0.022
"""Seconds per typed character."""
WIDTH, HEIGHT, SIZE = 8.4, 19, 14
"""Width and height of a character cell, and the size of the font."""

SETUP = r"""
git init -q shop && cd shop && printf '.env\n.venv/\nagent\ncheck\n' > .gitignore
echo 'import flask' > app.py && git add . && git commit -q -m 'the shop'
packages=.venv/lib/python3.12/site-packages
install() {
    mkdir -p $packages/$1-$2.dist-info
    printf "Name: $1\nVersion: $2\n" > $packages/$1-$2.dist-info/METADATA
}
install flask 2.3.3; install sqlalchemy 2.0.30; touch .venv/pyvenv.cfg
printf 'DATABASE_URL=sqlite:///shop.db\nDEBUG=1\n' > .env
cat > check <<'END'
#!/bin/sh
grep -q DATABASE_URL .env || { echo 'KeyError: DATABASE_URL'; exit 1; }
echo '12 tests passed'
END
cat > agent <<'END'
#!/bin/sh
export GIT_ENVHIST_AGENT=claude-code
git envlog capture -q --if-changed -m "$1"
cd .venv/lib/python3.12/site-packages
mv flask-2.3.3.dist-info flask-3.1.0.dist-info && sed -i 's/2.3.3/3.1.0/' flask-3.1.0.dist-info/METADATA
cd ../../../.. && sed -i '/DATABASE_URL/d' .env
git envlog capture -q -m "$1: done"
echo 'Done! I upgraded Flask and cleaned up the settings.'
END
chmod +x check agent
git envlog capture -q 'it works' --verify ./check >/dev/null 2>&1
"""
STEPS = (
    "./agent 'upgrade the packages'",
    "./check",
    "git status --short          # git sees no change",
    "git envlog                  # git-envhist does",
    "git envdiff good",
    "git envrestore good         # back to the last snapshot that passed its check",
    "./check",
    "git envrestore --undo       # a restore can be undone, too",
)
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
COLOURS = {
    31: "#f47067",
    32: "#6bc46d",
    33: "#c69026",
    34: "#539bf5",
    35: "#b083f0",
    36: "#39c5cf",
    90: "#768390",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the terminal: a typed command or printed text with its colours."""

    text: str
    typed: bool = False


def run_session() -> list[Line]:
    """Run the steps in a new repository; return the lines of the terminal."""
    with tempfile.TemporaryDirectory(prefix="session-") as directory:
        home, programs = Path(directory, "home"), Path(directory, "bin")
        home.mkdir()
        programs.mkdir()
        make_programs(programs)
        path = os.pathsep.join((str(programs), os.path.dirname(sys.executable), os.environ["PATH"]))
        env = {
            **os.environ,
            **sealed_environment(home),
            "PATH": path,
            "TERM": "xterm-256color",
            "GIT_PAGER": "cat",
        }
        env.pop("NO_COLOR", None)
        subprocess.run(["bash", "-c", SETUP], cwd=directory, env=env, check=True, stdin=subprocess.DEVNULL)
        lines: list[Line] = []
        for step in STEPS:
            lines.append(Line(f"$ {step}", typed=True))
            printed = _on_terminal(step, os.path.join(directory, "shop"), env)
            lines.extend(Line(line) for line in shown(printed))
        return lines


def _on_terminal(command: str, directory: str, env: dict[str, str]) -> str:
    """Run a command on a terminal of a fixed size; return what it wrote."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    child = subprocess.Popen(
        ["bash", "-c", command],
        cwd=directory,
        env=env,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    data = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux reports the end of a terminal so.
            break
        if not part:
            break
        data += part
    os.close(leader)
    child.wait()
    return data.decode("utf-8", "replace")


def shown(printed: str) -> Iterator[str]:
    """Return the lines as they remain on the terminal: progress that was overwritten is left out."""
    # A progress bar ends with a line feed, and is erased from the line below.
    kept = re.sub(r"[^\n]*\n(?:\x1b\[\?25h)?\r?\x1b\[1A", "", printed.replace("\r\n", "\n"))
    for line in kept.rstrip("\n").split("\n") if kept.strip() else ():
        last = re.sub(r"\x1b\[[0-9;]*[A-HJKSTfsu]|\x1b\[\?\d+[hl]", "", line.rpartition("\r")[2])
        if re.sub(r"\x1b\[[0-9;]*m", "", last).strip():
            yield last


def plain(line: Line) -> str:
    """Return the text of a line without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line.text)


def _spans(text: str) -> str:
    """Return the text as elements of SVG, with the colours that the escape sequences name."""
    drawn, colour, bold, at = [], "", False, 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b["):
            for code in (int(number or 0) for number in part[2:-1].split(";")):
                if code in (0, 39):
                    colour, bold = ("", bold) if code == 39 else ("", False)
                elif code in (1, 2):
                    bold, colour = (True, colour) if code == 1 else (bold, COLOURS[90])
                elif code in COLOURS:
                    colour = COLOURS[code]
        elif part:
            style = (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if bold else "")
            drawn.append(f'<tspan x="{12 + at * WIDTH:.1f}"{style}>{html.escape(part)}</tspan>')
            at += len(part)
    return "".join(drawn)


def draw(lines: list[Line]) -> str:
    """Return the animated picture."""
    starts, now = [], 0.6
    for line in lines:
        starts.append(now)
        now += TYPING * len(line.text) + 0.35 if line.typed else 0.05
        following = starts and len(starts) < len(lines) and lines[len(starts)].typed
        now += 0.9 if following else 0
    total = now + 4
    body, style = [], []
    for number, (line, start) in enumerate(zip(lines, starts, strict=True)):
        y = 44 + number * HEIGHT
        percent = 100 * start / total
        style.append(
            f"@keyframes l{number}{{0%,{percent:.2f}%{{opacity:0}}{percent + 0.01:.2f}%,100%{{opacity:1}}}}"
        )
        style.append(f".l{number}{{animation:l{number} {total:.1f}s infinite}}")
        command = re.sub(r"(  #.*|$)", "\x1b[0m\x1b[2m\\1\x1b[0m", line.text[1:], count=1)
        drawn = _spans(f"\x1b[32m$\x1b[0m\x1b[1m{command}" if line.typed else line.text)
        cover = ""
        if line.typed:
            # A rectangle moves to the right over the command, one character after the other: it looks typed.
            length = len(line.text) * WIDTH
            end = 100 * (start + TYPING * len(line.text)) / total
            style += [
                f"@keyframes c{number}{{0%,{percent:.2f}%{{transform:translateX(0);",
                f"animation-timing-function:steps({len(line.text)})}}",
                f"{end:.2f}%,100%{{transform:translateX({length:.0f}px)}}}}",
                f".c{number}{{animation:c{number} {total:.1f}s infinite}}",
            ]
            size = f'width="{length:.0f}" height="{HEIGHT}"'
            cover = f'<rect class="c{number} k" x="28" y="{y - 14}" {size} fill="#22272e"/>'
        body.append(f'<g class="l{number}"><text y="{y}" xml:space="preserve">{drawn}</text>{cover}</g>')
    style.append(_scrolling(starts, total))
    width, height = round(COLUMNS * WIDTH + 24), 34 + ROWS * HEIGHT + 8
    size = f'width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img">\n'
        "<title>A terminal: an agent breaks the environment, git-envhist restores it</title>\n"
        f"<style>text{{font:{SIZE}px {FONTS};fill:#adbac7}}\n"
        + "\n".join(style)
        + "\n@media (prefers-reduced-motion:reduce){*{animation:none!important}.k{display:none}}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#22272e"/>\n'
        f'<clipPath id="screen"><rect y="26" width="{width}" height="{height - 30}"/></clipPath>\n'
        '<circle cx="18" cy="15" r="5" fill="#f47067"/><circle cx="36" cy="15" r="5" fill="#c69026"/>'
        '<circle cx="54" cy="15" r="5" fill="#6bc46d"/>\n'
        '<g clip-path="url(#screen)"><g class="s">\n' + "\n".join(body) + "\n</g></g>\n</svg>\n"
    )


def _scrolling(starts: list[float], total: float) -> str:
    """Return the rule that moves the lines up when the screen is full."""
    frames = ["0%{transform:translateY(0)}"]
    for number in range(ROWS, len(starts)):
        percent = 100 * starts[number] / total
        frames.append(f"{percent:.2f}%{{transform:translateY(-{(number - ROWS) * HEIGHT}px)}}")
        frames.append(f"{percent + 0.01:.2f}%{{transform:translateY(-{(number - ROWS + 1) * HEIGHT}px)}}")
    over = max(0, len(starts) - ROWS) * HEIGHT
    frames.append(f"100%{{transform:translateY(-{over}px)}}")
    return f"@keyframes s{{{''.join(frames)}}}.s{{animation:s {total:.1f}s infinite;transform:translateY(-{over}px)}}"


def texts(picture: str) -> list[str]:
    """Return the lines of text that a picture shows."""
    drawn = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    return [html.unescape(re.sub(r"<[^>]*>", "", line)) for line in drawn]


if __name__ == "__main__":
    PICTURE.write_text(draw(run_session()), encoding="utf-8")
