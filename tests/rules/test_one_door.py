"""The engine of a restore changes the disk through one module only; the journal writes its own files."""

from __future__ import annotations

import ast

import pytest

from tests.rules.source import Source, sources

CHANGING = {
    *(
        "chmod",
        "chown",
        "fchmod",
        "fchown",
        "lchown",
        "ftruncate",
        "link",
        "makedirs",
        "mkdir",
        "mkfifo",
        "mknod",
    ),
    *("pwrite", "pwritev", "remove", "removedirs", "removexattr", "rename", "renames", "replace", "rmdir"),
    *(
        "setxattr",
        "symlink",
        "sync",
        "truncate",
        "unlink",
        "utime",
        "write",
        "writev",
        "sendfile",
        "copy_file_range",
    ),
}
MAY = {
    "git_envhist.restore.disk_calls": "the calls themselves",
    "git_envhist.restore.journal": "its own files, in the git directory",
    "git_envhist.restore.write_elsewhere": "the directory that the user named",
    "git_envhist.workers": "what workers hand over, in files without a name",
}
RESTORE = [source for source in sources() if source.package == "restore" and source.name not in MAY]


@pytest.mark.parametrize("source", RESTORE, ids=lambda source: source.name)
def test_no_other_restore_module_changes_a_disk(source: Source) -> None:
    calls = list(source.nodes(ast.Call))
    named = [call.func for call in calls if isinstance(call.func, ast.Attribute)]
    through_os = [
        func for func in named if isinstance(func.value, ast.Name) and func.value.id in ("os", "shutil")
    ]
    wrong = [f"line {func.lineno}: os.{func.attr}" for func in through_os if func.attr in CHANGING]
    assert not wrong


def test_every_exception_is_still_needed() -> None:
    assert set(MAY) <= {source.name for source in sources()}
