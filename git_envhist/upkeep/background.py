"""The daily upkeep of one repository of ours, named by its places: what a capture starts in the background.

A directory without git, or the workspace of a checkpoint class, may lie in a repository of the user's. So nothing is
looked for: the upkeep works on the repository that is named, and on no other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.opening import OpenedRepository
from git_envhist.store.git import Git
from git_envhist.store.plain import OBJECT_FORMAT
from git_envhist.store.repository import Repository


def run_upkeep(words: Sequence[str]) -> int:
    """Run the daily upkeep of the repository that `<kind> <root> <git_dir> <common_dir>` name; return the status."""
    kind, root, git_dir, common_dir = words
    git = Git(common_dir, root)
    repository = Repository(
        root, git_dir, common_dir, OBJECT_FORMAT, git, plain=True, library=kind == "library"
    )
    try:
        EnvHistory(OpenedRepository(repository), os.environ, directory=root).daily()
    except EnvhistError as error:
        return error.exit_code
    return 0
