"""Interop tests may be run with every git that is here."""

from __future__ import annotations

import pytest

from tests.support.gits import PLACE, OtherGit, gits

NO_OTHERS = pytest.mark.skip(reason="no other git here: .ci/gits <directory>, ENVHIST_TEST_GITS=<directory>")


@pytest.fixture(params=[*gits(), *([] if PLACE else [pytest.param(None, marks=NO_OTHERS)])], ids=str)
def any_git(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OtherGit:
    """One git after the other, first on the PATH of whatever the test runs."""
    git: OtherGit = request.param
    git.put_first(monkeypatch)
    return git
