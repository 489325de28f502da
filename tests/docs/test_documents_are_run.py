"""Tests of the tools that read documents and compare their sessions."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.documents import Step, blocks, differs, run_commands, steps


def test_session_is_split_into_commands_and_their_output() -> None:
    session = "$ one \\\n> more\nprinted\n\n$ two\n"
    assert list(steps(session)) == [Step("one \\\nmore", ("printed", "")), Step("two", ())]


def test_blocks_are_found_by_their_language(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n```sh\none\n```\n```console\n$ two\n```\n```sh\nthree\n```\n")
    assert blocks(page, "sh") == ["one\n", "three\n"]


def test_commands_share_a_shell_and_each_has_its_status(tmp_path: Path) -> None:
    outcomes = run_commands(["x=5; false", "echo $x >&2", "cd /; pwd"], tmp_path, os.environ)
    assert [(o.status, o.out) for o in outcomes] == [(1, ""), (0, "5\n"), (0, "/\n")]


def test_only_values_that_change_with_every_run_may_differ() -> None:
    assert differs(("9ac31f2  10:27  · text  0.31 s",), "0123456 23:59   · text 12.5 s\n") is None
    assert differs(("[laptop/demo-4f2a91 9ac31f2] x",), "[ci-7/demo-000000 1234567] x\n") is None
    assert differs(("a … c",), "a whatever b c\n") is None
    assert differs(("text",), "another text\n") is not None
    assert differs(("3 files",), "4 files\n") is not None
    assert differs(("one",), "one\ntwo\n") is not None
    assert differs((), "") is None
