"""Run the daily upkeep of one repository: the program that a capture starts in the background.

The repository is named by its directories, never searched for: a directory without git, or the workspace of a
checkpoint library, may lie in a repository of the user.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from git_envhist.api import EnvHistory
from git_envhist.discovery import OBJECT_FORMAT, OpenedRepository
from git_envhist.errors import EnvhistError
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository


def run_upkeep(words: Sequence[str]) -> int:
    """Run the daily upkeep of the repository that `<kind> <root> <git_dir> <common_dir>` name; return the status."""
    kind, root, git_dir, common_dir = words
    git = Git(common_dir, root)
    repository = Repository(
        root, git_dir, common_dir, OBJECT_FORMAT, git, plain=True, library=kind == "library"
    )
    try:
        EnvHistory(OpenedRepository(repository), os.environ, directory=root, one_command=True).daily()
    except EnvhistError as error:
        return error.exit_code
    return 0
