"""Builds the man pages: `python docs/man/build.py` writes docs/man/man1/*.1 from docs/man/*.rst.

The pages are committed, so that an installation needs no docutils. Each names the source it was made from by hash, so
that a test can tell whether it is still that one, whatever version of docutils the machine has.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
PAGES = SOURCES / "man1"
# What a terminal that knows no such letter shows instead; without it man complains.
PLAIN = ".fchar \\[OK] v\n.fchar \\[u2713] v\n.fchar \\[u2717] x\n"


def stamp(source: bytes) -> str:
    """The line that a page carries about its source."""
    return f'.\\" source: sha256 {hashlib.sha256(source).hexdigest()}\n'


def build(source: Path) -> str:
    """The page of a source, as roff."""
    from docutils.core import publish_string

    settings = {"report_level": 2, "halt_level": 2, "output_encoding": "unicode", "_disable_config": True}
    page = str(
        publish_string(source.read_text(encoding="utf-8"), writer="manpage", settings_overrides=settings)
    )
    # Programs that index man pages look for this very word.
    return stamp(source.read_bytes()) + PLAIN + page.replace(".SH Name\n", ".SH NAME\n")


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    for source in sorted(SOURCES.glob("*.rst")):
        (PAGES / f"{source.stem}.1").write_text(build(source), encoding="utf-8")


if __name__ == "__main__":
    main()
