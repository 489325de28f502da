"""Files are replaced by `disk.replace_file`; other modules rename only for the reasons listed here."""

from __future__ import annotations

import ast

from tests.rules.source import Source, sources

RENAMING = {"rename", "renames", "replace"}
EXCEPTIONS = {
    "git_envhist.compat.storage": "moves directories of histories; puts a damaged file aside",
    "git_envhist.discovery": "gives a complete new repository its name",
    "git_envhist.integrations.agents.events": "takes an event out of the spool",
    "git_envhist.integrations.git_hooks": "takes a mark out of the way before it is compared",
    "git_envhist.integrations.remove_history": "moves packs into the user's object store",
    "git_envhist.maintenance.repair": "puts damaged packs aside",
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


def renames(source: Source) -> bool:
    """Return whether the module names `os.rename` or `os.replace`."""
    return any(
        node.attr in RENAMING and isinstance(node.value, ast.Name) and node.value.id == "os"
        for node in source.nodes(ast.Attribute)
    )


def test_only_the_named_exceptions_rename_files() -> None:
    assert {source.name for source in sources() if renames(source)} == {"git_envhist.disk", *EXCEPTIONS}
