"""Count cells and outputs of Jupyter notebooks, with a digest of the source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.table_facts import MAX_FILES, has_own_data, place_text

PROBE = "notebook"
MAX_CELLS = 20_000


def wants(directory: bytes) -> bool:
    return has_own_data(directory) and b".ipynb_checkpoints" not in directory.split(b"/")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the numbers of cells, outputs and failed outputs, and a digest of the source."""
    for name in sorted(files)[:MAX_FILES]:
        cells = _cells(files[name].data or b"")
        if cells is None:
            continue
        place = place_text(directory, name)
        code = [cell for cell in cells if cell.get("cell_type") == "code"]
        outputs = [one for cell in code for one in _list(cell.get("outputs"))]
        failed = sum(isinstance(one, dict) and one.get("output_type") == "error" for one in outputs)
        values = {
            "code": f"{len(code)} cells",
            "text": f"{len(cells) - len(code)} cells",
            "results": f"{len(outputs)} outputs",
            **({"errors": f"{failed} outputs"} if failed else {}),
            "source": f"#{_digest(cells)}",
        }
        for key, value in values.items():
            yield Fact(PROBE, f"{place}/{key}", value, EnvPath(directory), auto=key == "source")


def _cells(data: bytes) -> list[dict[str, Any]] | None:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    cells = values.get("cells") if isinstance(values, dict) else None
    if not isinstance(cells, list) or len(cells) > MAX_CELLS:
        return None
    return [cell for cell in cells if isinstance(cell, dict)]


def _digest(cells: list[dict[str, Any]]) -> str:
    digest = blake2b(digest_size=6)
    for cell in cells:
        source = cell.get("source")
        lines = "".join(one for one in source if isinstance(one, str)) if isinstance(source, list) else source
        digest.update(repr((cell.get("cell_type"), lines)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
