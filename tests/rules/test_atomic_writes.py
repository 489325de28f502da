"""Files are replaced by `disk.replace_file`; other modules rename only for the reasons listed here."""

from __future__ import annotations

import ast

import pytest

from tests.rules.source import Source, sources

RENAMING = {"rename", "renames", "replace"}
EXCEPTIONS = {
    "git_envhist.compat.storage": "moves directories of histories; puts a damaged file aside",
    "git_envhist.discovery": "gives a complete new repository its name",
    "git_envhist.integrations.agents.events": "takes an event out of the spool",
    "git_envhist.integrations.git_hooks": "takes a mark out of the way before it is compared",
    "git_envhist.integrations.remove_history": "moves packs into the user's object store",
    "git_envhist.maintenance.fsck": "puts damaged packs aside",
    "git_envhist.maintenance.repack": "names packs that git wrote, and removed packs as a directory",
    "git_envhist.objects.own_packs": "puts packs aside and back",
    "git_envhist.objects.pack_writer": "names a pack by its content",
    "git_envhist.remote.bundle": "moves received packs",
    "git_envhist.restore.disk_calls": "the calls of a restore, relative to directory descriptors",
    "git_envhist.restore.journal": "a phase that was written in advance, for a full disk",
    "git_envhist.retention.purge": "moves the directory of fetched timelines out of the way",
    "git_envhist.rewrite.salvage": "puts a damaged ref aside",
    "git_envhist.secrets.keys": "puts a damaged list aside",
    "git_envhist.snapshots.staging": "publishes packs",
    "git_envhist.worktree.timeline_name": "puts a damaged name aside",
}
OTHERS = [source for source in sources() if source.name != "git_envhist.disk"]


def renames(source: Source) -> list[int]:
    """Return the lines that call `os.rename` or `os.replace`."""
    return [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in RENAMING
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]


@pytest.mark.parametrize("source", OTHERS, ids=lambda source: source.name)
def test_module_renames_no_file_unless_it_is_a_named_exception(source: Source) -> None:
    assert source.name in EXCEPTIONS or not renames(source)


def test_every_named_exception_still_renames() -> None:
    assert set(EXCEPTIONS) == {source.name for source in OTHERS if renames(source)}
