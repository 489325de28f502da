"""Free what the rules keep in memory when the last of them has run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rules.source import forget_syntax


@pytest.fixture(scope="package", autouse=True)
def syntax_is_freed() -> Iterator[None]:
    yield
    forget_syntax()
