"""Every example of the documentation is run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.rules.source import CHECKOUT
from tests.support.repository import Repo

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = ("api.md",)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_are_true(page: str, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo.path)
    path: Path = CHECKOUT / "docs" / page
    done = doctest.testfile(str(path), module_relative=False, optionflags=OPTIONS, encoding="utf-8")
    assert done.attempted > 5
    assert not done.failed
