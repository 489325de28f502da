"""The faults that `mutants` puts into the engine are still faults of the engine that there is."""

from __future__ import annotations

import pytest

from tests.restore.mutants import MUTANTS, Mutant, place_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.instead}")
def test_the_line_is_still_there(mutant: Mutant) -> None:
    assert mutant.line in place_of(mutant).read_text()
