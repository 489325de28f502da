"""Hard links share a number that no other file has."""

from __future__ import annotations

import os
from pathlib import Path

from git_envhist.worktree.owner_and_xattrs import link_group


def test_same_inode_on_another_file_system_is_another_file(tmp_path: Path) -> None:
    here = tmp_path / "file"
    here.write_bytes(b"")
    os.link(here, tmp_path / "link")
    home = os.stat(here).st_dev

    assert link_group(os.stat(here), home) == link_group(os.stat(tmp_path / "link"), home)
    assert link_group(os.stat(here), home) != link_group(os.stat(here), home + 1)
    assert 0 <= link_group(os.stat(here), home + 1) < 1 << 64
