"""A short run of the campaign of storms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.watcher.storms import StormCampaign


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
def test_captures_during_storms_find_what_full_looks_find(tmp_path: Path, seed: int) -> None:
    campaign = StormCampaign(tmp_path, seed)
    try:
        assert [found for number in range(1, 26) if (found := campaign.round(number))] == []
    finally:
        campaign.close()
    assert campaign.counts["captures with the watcher"] > 0
