"""Measure how long a tool of an agent waits for its hook: `python -m tests.benchmarks.agent_hooks [calls]`.

Each row is the median of some calls of the installed script for Claude Code: for a tool that only reads, for one before
which nothing changed, and for one before which one file changed; with a process that waits for the next tool, and
without one (`envhist.agentIdle=0`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import sealed_environment
from tests.support.programs import make_programs
from tests.support.repository import Repo, make_repo

CALLS = 40
FILES = 300
SETTLED = 3.0
"""Seconds in which the first hook's process begins to wait."""


def main(calls: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        home, programs = Path(place, "home"), Path(place, "programs")
        for directory in (home, programs):
            directory.mkdir()
        os.environ.update(sealed_environment(home))
        os.environ["PATH"] = f"{make_programs(programs)}{os.pathsep}{os.environ['PATH']}"
        repo = make_repo(Path(place, "tree"))
        for number in range(FILES):
            repo.write(f"src/{number % 20}/{number}.py", "pass\n")
        repo.run("envlog", "install", "--agent", "claude-code", check=True)
        repo.run("envlog", "capture", "first", check=True)
        print(f"milliseconds, median and 95th percentile of {calls} calls")
        for idle in ("0", "2m"):
            repo.git("config", "envhist.agentIdle", idle)
            call(repo, "Write", "first")
            time.sleep(SETTLED)
            for name, tool, changes in (
                ("only reads", "Read", False),
                ("nothing changed", "Write", False),
                ("one file changed", "Write", True),
            ):
                print(f"agentIdle={idle:3} {name:17} {measure(repo, tool, calls, changes=changes)}")


def measure(repo: Repo, tool: str, calls: int, *, changes: bool) -> str:
    taken = []
    for number in range(calls):
        if changes:
            repo.write("src/0/0.py", f"{number}\n")
        taken.append(call(repo, tool, f"{time.time_ns()}"))
    return f"{statistics.median(taken):6.1f} {sorted(taken)[int(0.95 * calls)]:6.1f}"


def call(repo: Repo, tool: str, number: str) -> float:
    """Call the hook before a tool and return the milliseconds that the tool waits."""
    script = Path(repo.env["XDG_DATA_HOME"], "git-envhist/hooks/agent-claude-code")
    event = {
        "session_id": "s",
        "cwd": str(repo.path),
        "tool_name": tool,
        "tool_use_id": number,
        "tool_input": {},
    }
    started = time.perf_counter()
    subprocess.run(
        [script, "before"], input=json.dumps(event).encode(), cwd=repo.path, env=repo.env, check=True
    )
    return 1000 * (time.perf_counter() - started)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else CALLS)
