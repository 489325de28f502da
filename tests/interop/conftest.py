"""A fixture that runs a test with every installed git."""

from __future__ import annotations

import pytest

from tests.support.gits import PLACE, OtherGit, gits

NO_OTHERS = pytest.mark.skip(
    reason="no other git installed: .ci/gits <directory>, ENVHIST_TEST_GITS=<directory>"
)


@pytest.fixture(params=[*gits(), *([] if PLACE else [pytest.param(None, marks=NO_OTHERS)])], ids=str)
def any_git(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OtherGit:
    """Run the test with each git as the first on the PATH."""
    git: OtherGit = request.param
    git.put_first(monkeypatch)
    return git
