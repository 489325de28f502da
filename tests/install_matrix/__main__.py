"""Install the checkout by pip, by pipx and by `uv tool`, each in its own home, and try the result.

    python -m tests.install_matrix            # two minutes; uses the package indexes of pip

Each installation must provide the four programs, answer `-h`, show the manual by `git help` (uv after
`install --shell`), and have the completions where the shells look.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.rules.source import CHECKOUT

PROGRAMS = ("envlog", "envdiff", "envrestore", "envhist")
BASH = "bash-completion/completions/git-envlog"


class Place:
    """A home directory, and the tools that install packages there."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.home.mkdir()
        self.tools = directory / "tools"
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_"))
        }
        self.env |= {
            "HOME": str(self.home),
            "MANPAGER": "cat",
            "PIPX_DEFAULT_BACKEND": "pip",
            "UV_SYSTEM_CERTS": "1",
        }
        subprocess.run([sys.executable, "-m", "venv", str(self.tools)], check=True)
        # Give the index settings of pip to pipx and uv too.
        for name, variable in (
            ("extra-index-url", "UV_INDEX"),
            ("index-url", "UV_DEFAULT_INDEX"),
            ("find-links", "UV_FIND_LINKS"),
        ):
            found = self.run(str(self.tools / "bin/pip"), "config", "get", f"global.{name}", real=True)
            if found.returncode == 0:
                self.env[variable] = " ".join(found.stdout.split())
        self.run(str(self.tools / "bin/pip"), "install", "-q", "pipx", "uv", real=True, check=True)
        self.env["PATH"] = f"{self.home}/.local/bin:{self.tools}/bin:/usr/local/bin:/usr/bin:/bin"

    def run(self, *words: str, real: bool = False, check: bool = False) -> subprocess.CompletedProcess[str]:
        env = dict(os.environ) if real else self.env
        return subprocess.run(words, env=env, cwd=self.home, capture_output=True, text=True, check=check)


def tried(place: Place, name: str, shared: Path) -> list[str]:
    """Return a line for each program, manual page or completion that does not work."""
    wrong = []
    for program in PROGRAMS:
        if "usage: git env" not in place.run(f"git-{program}", "-h").stdout:
            wrong.append(f"{name}: git {program} -h")
        if shutil.which("man") and f"git-{program}(1)" not in place.run("git", "help", program).stdout:
            wrong.append(f"{name}: git help {program}")
    if not (shared / BASH).is_file():
        wrong.append(f"{name}: completions")
    return wrong


def main() -> int:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        place = Place(Path(directory))
        local = place.home / ".local/share"
        for name, words, away in (
            ("pipx", ("pipx", "install", str(CHECKOUT)), ("pipx", "uninstall", "git-envhist")),
            ("uv", ("uv", "tool", "install", str(CHECKOUT)), ("uv", "tool", "uninstall", "git-envhist")),
        ):
            began = time.monotonic()
            place.run(*words, check=True)
            print(f"{name}: installed in {time.monotonic() - began:.1f} s")
            if name == "uv":
                place.run("git", "envlog", "install", "--shell", check=True)
            wrong += tried(place, name, local)
            place.run(*away, check=True)
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(place.home / "venv")], check=True)
        place.run(str(place.home / "venv/bin/pip"), "install", "-q", str(CHECKOUT), real=True, check=True)
        print(f"pip: installed in {time.monotonic() - began:.1f} s")
        place.env["PATH"] = f"{place.home}/venv/bin:{place.env['PATH']}"
        wrong += tried(place, "pip", place.home / "venv/share")
    print("\n".join(wrong) or "all installations work")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
