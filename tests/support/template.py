"""Repositories that are built once and copied for each test that starts from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.support.repository import Repo, new_template, replace_tree

T = TypeVar("T")

_built: dict[Callable[[Repo], Any], tuple[Path, Any, dict[str, str]]] = {}


def start_from(repo: Repo, build: Callable[[Repo], T]) -> T:
    """Give a new repository what `build` makes in one, and return what `build` returned the first time.

    `build` may change `repo.env`. Its result is used again, so it must not depend on the repository's path.
    """
    if build not in _built:
        before = dict(repo.env)
        value = build(repo)
        kept = new_template() / "repo"
        replace_tree(repo.path, kept)
        changed = {name: text for name, text in repo.env.items() if before.get(name) != text}
        _built[build] = kept, value, changed
        return value
    kept, value, changed = _built[build]
    replace_tree(kept, repo.path)
    repo.env.update(changed)
    # The index has the inodes and the times of the files that were copied.
    repo.run_git("update-index", "-q", "--refresh", check=False)
    return value
