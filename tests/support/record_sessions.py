"""Record the sessions of documents again: `python -m tests.support.record_sessions PAGE...`.

Each command of a page's `console` blocks is run, in one shell in an empty directory, as tests/test_docs.py does. Output
that the page shows correctly is kept as it is; other output is replaced by the real one. Read the diff before you
commit it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from tests.conftest import sealed_environment
from tests.support.documents import FENCE, Step, differs, plain_environment, run_commands, steps
from tests.support.programs import make_programs


def record(page: Path) -> int:
    """Write the page with real output; return the number of changed outputs."""
    text = page.read_text(encoding="utf-8")
    shown = [step for kind, block in FENCE.findall(text) if kind == "console" for step in steps(block)]
    with tempfile.TemporaryDirectory(prefix="record-") as directory:
        outcomes = run_commands(
            [step.command for step in shown], _workplace(directory), _environment(directory)
        )
        fresh = iter(
            _lines(step, "\n".join(line for line in outcome.out.split("\n") if line.strip()), directory)
            for step, outcome in zip(shown, outcomes, strict=True)
        )
        for step, outcome in zip(shown, outcomes, strict=True):
            if outcome.status:
                print(f"{page}: status {outcome.status}: {step.command}\n{outcome.out}", file=sys.stderr)
    changed = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal changed
        if found[1] != "console":
            return found[0]
        lines = []
        for step in steps(found[2]):
            lines.append("$ " + step.command.replace("\n", "\n> "))
            now = next(fresh)
            changed += now != step.shown
            lines.extend(now)
        return "```console\n" + "\n".join(lines).rstrip("\n") + "\n```"

    page.write_text(FENCE.sub(replace, text), encoding="utf-8")
    return changed


def _workplace(directory: str) -> Path:
    place = Path(directory) / "work"
    place.mkdir()
    return place


def _environment(directory: str) -> dict[str, str]:
    home = Path(directory) / "home"
    home.mkdir()
    programs = Path(directory) / "programs"
    programs.mkdir()
    make_programs(programs)
    path = os.pathsep.join((str(programs), os.path.dirname(sys.executable), os.environ["PATH"]))
    return plain_environment({**os.environ, **sealed_environment(home), "PATH": path})


def _lines(step: Step, printed: str, directory: str) -> tuple[str, ...]:
    """Return the shown lines if they match, else the printed ones without what differs between machines."""
    if differs(tuple(line for line in step.shown if line.strip()), printed) is None:
        return step.shown
    host = re.compile(r"\b[\w.-]+(/[\w.-]+-[0-9a-f]{6})\b")
    text = host.sub(r"laptop\1", printed.replace(f"{directory}/work", "…").replace(f"{directory}/home", "…"))
    text = re.sub(r"^(Date: +).*", r"\1…", text, flags=re.MULTILINE)
    return tuple(line.rstrip() for line in text.split("\n") if line.strip())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {record(Path(name))} outputs changed")
