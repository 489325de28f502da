"""The libraries' documented examples with both classes: `python -m tests.compat.upstream.examples [<page>…]`.

chimera's pages are in its source distribution; more pages are given as arguments. An example that succeeds with the
original classes must succeed with ours and leave the same files. Examples that fail with the original classes may
succeed with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.compat.upstream.conftest import PROGRAMS
from tests.compat.upstream.suites import _fetch
from tests.rules.source import CHECKOUT

PAGES = (
    *(
        "modules/checkpoints.md",
        "guides/checkpoints.md",
        "reference/checkpoints.md",
        "concepts/environments.md",
    ),
    *("concepts/file-undo.md", "modules/loop-config.md", "modules/file-tracker.md", "architecture.md"),
)


def main(words: list[str]) -> int:
    worse = 0
    with tempfile.TemporaryDirectory() as place:
        libraries, source = _fetch(Path(place))
        docs = source / "site/src/content/docs"
        for page in [*(docs / name for name in PAGES), *map(Path, words)]:
            theirs, ours = (_run(libraries, Path(place), page, whose) for whose in ("theirs", "ours"))
            both = list(zip(theirs, ours, strict=True))
            bad = [(one, other) for one, other in both if _is_worse(one, other)]
            better = sum(one[1] != "done" and other[1] == "done" for one, other in both)
            ran = sum(other[1] == "done" for other in ours)
            print(
                f"{page.name}: {len(both)} examples, {ran} run with ours, {better} of these fail with the original"
            )
            for one, other in bad:
                print(
                    f"  worse: {one[0]!r}: {one[1]} original, {other[1]} ours; {one[2]} original, {other[2]} ours"
                )
            worse += len(bad)
    return 1 if worse else 0


def _is_worse(theirs: list[Any], ours: list[Any]) -> bool:
    if theirs[1] != "done":
        return False
    return bool(ours[1] != "done" or theirs[2] != ours[2])


def _run(libraries: Path, place: Path, page: Path, whose: str) -> list[list[Any]]:
    workspace = Path(tempfile.mkdtemp(dir=place)) / "workspace"
    workspace.mkdir()
    paths = os.pathsep.join(map(str, (PROGRAMS, libraries, CHECKOUT)))
    settled = {"PYTHONPATH": paths, "OPENAI_API_KEY": "none", "PRAISONAI_TELEMETRY_DISABLED": "true"}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "page.py"), str(workspace), whose, str(page.absolute())],
        env={**os.environ, **settled, "DO_NOT_TRACK": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    told: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])["blocks"]
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
