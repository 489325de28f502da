"""Build the completions: `python completions/build.py` writes the files of bash, zsh and fish from the commands.

All static words are in the files, so that TAB starts no Python; only snapshots, names and timelines are asked for, with
`git-envhist complete`. The files are committed, so that an installation needs no build; a test checks that they are
up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

PLACE = Path(__file__).resolve().parent
sys.path.insert(0, str(PLACE))

from for_bash import bash  # noqa: E402
from for_fish import fish, fish_beside  # noqa: E402
from for_zsh import zsh  # noqa: E402
from shapes import shapes  # noqa: E402


def files() -> dict[Path, str]:
    """Return the text of every file."""
    programs = shapes()
    made = {PLACE / "fish-conf" / "git-envhist.fish": fish_beside(programs)}
    for program, several in programs.items():
        made[PLACE / "bash" / program] = bash(program, several)
        made[PLACE / "zsh" / f"_{program}"] = zsh(program, several)
        made[PLACE / "fish" / f"{program}.fish"] = fish(program, several)
    return made


def main() -> None:
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
