"""Every example of the documentation is run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.rules.source import CHECKOUT
from tests.support.repository import Repo, make_repo

pytestmark = pytest.mark.usefixtures("in_process")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = ("guide/api.md",)
MODULES = ("api", "aio")


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_run(page: str, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo.path)
    path: Path = CHECKOUT / "docs" / page
    done = doctest.testfile(str(path), module_relative=False, optionflags=OPTIONS, encoding="utf-8")
    assert done.attempted > 5
    assert not done.failed


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_verbs_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from git_envhist import EnvHistory

    module: ModuleType = importlib.import_module(f"git_envhist.{name}")
    ran = 0
    for number, example in enumerate(doctest.DocTestFinder().find(module)):
        if not example.examples:
            continue
        monkeypatch.chdir(make_repo(tmp_path / str(number) / "repo").path)
        example.globs["history"] = EnvHistory.open(".")
        done = doctest.DocTestRunner(optionflags=OPTIONS).run(example)
        assert not done.failed, example.name
        ran += done.attempted
    assert ran
