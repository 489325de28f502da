"""Build the man pages: `python docs/man/build.py` writes docs/man/man1/*.1 from docs/man/*.rst.

The pages are committed, so that an installation needs no docutils. Each contains the hash of its source, so that a test
can check whether it is up to date, whatever version of docutils is installed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
PAGES = SOURCES / "man1"
# Replacements for a terminal without these characters; without them man prints a warning.
PLAIN = ".fchar \\[OK] v\n.fchar \\[u2713] v\n.fchar \\[u2717] x\n"


def stamp(source: bytes) -> str:
    """Return the line of a page with the hash of its source."""
    return f'.\\" source: sha256 {hashlib.sha256(source).hexdigest()}\n'


def build(source: Path) -> str:
    """Return the page of a source, as roff."""
    from docutils.core import publish_string

    settings = {"report_level": 2, "halt_level": 2, "output_encoding": "unicode", "_disable_config": True}
    page = str(
        publish_string(source.read_text(encoding="utf-8"), writer="manpage", settings_overrides=settings)
    )
    # Programs that index man pages search for exactly this word.
    return stamp(source.read_bytes()) + PLAIN + page.replace(".SH Name\n", ".SH NAME\n")


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    for source in sorted(SOURCES.glob("*.rst")):
        (PAGES / f"{source.stem}.1").write_text(build(source), encoding="utf-8")


if __name__ == "__main__":
    main()
