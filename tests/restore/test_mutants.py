"""The lines that `mutants` changes still exist."""

from __future__ import annotations

import pytest

from tests.restore.mutants import MUTANTS, Mutant, place_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.instead}")
def test_line_of_the_mutant_exists(mutant: Mutant) -> None:
    assert mutant.line in place_of(mutant).read_text()
