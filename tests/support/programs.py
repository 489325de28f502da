"""The real programs, put where git finds them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = ("envlog", "envdiff", "envrestore", "envhist")

# As pip writes a console script, and as lean: nothing else is imported on the way. In a shell that keeps Python from
# writing bytecode each of thousands of programs would compile its modules anew.
SCRIPT = """\
#!{python}
import sys
sys.dont_write_bytecode = False
sys.path.insert(0, {checkout!r})
sys.argv[0] = {name!r}
from git_envhist.cli.entry import {program}
sys.exit({program}())
"""


def make_programs(directory: Path) -> Path:
    """Write the four programs into a directory, so that they run the checkout even where nothing is installed."""
    for program in PROGRAMS:
        path = directory / f"git-{program}"
        path.write_text(
            SCRIPT.format(
                python=sys.executable, checkout=str(CHECKOUT), name=f"git-{program}", program=program
            )
        )
        os.chmod(path, 0o755)
    return directory
