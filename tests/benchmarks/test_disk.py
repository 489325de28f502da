from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.benchmarks.disk import OURS, RESTIC, Sample, report
from tests.benchmarks.disk_image import MEGABYTE, DiskImage
from tests.benchmarks.real import DONE, build_real

SIZE = 64 * MEGABYTE


def _samples(*walls: float) -> list[Sample]:
    return [Sample(wall, wall, wall, 0, 0, 0) for wall in walls]


def test_ratio_is_the_median_of_the_ratios_of_the_same_turns() -> None:
    *_, last = report("title", {OURS: _samples(1, 8, 3), RESTIC: _samples(2, 8, 4)})
    assert "| 0.75 (0.50 to 1.00) |" in last


def test_further_copies_of_real_packages_differ_from_the_first(tmp_path: Path) -> None:
    app = tmp_path / "packages" / "app"
    (app / "node_modules").mkdir(parents=True)
    (app / "node_modules" / "index.js").write_text("1")
    (app / "node_modules" / "link.js").symlink_to("index.js")
    (tmp_path / "packages" / DONE).touch()
    build_real(tmp_path / "top", 3, tmp_path / "packages")
    contents = [
        path.read_text() for path in sorted((tmp_path / "top").glob("project*/node_modules/index.js"))
    ]
    assert contents == ["1", "1\n2"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mkfs.ext4"), reason="needs root and mkfs.ext4")
def test_file_in_an_image_survives_a_remount_and_no_renewal(tmp_path: Path) -> None:
    with DiskImage(tmp_path, "disk", "ext4", SIZE) as image:
        (image.top / "file").write_bytes(b"x" * MEGABYTE)
        image.forget_cache()
        assert (image.top / "file").stat().st_size == MEGABYTE
        image.sync()
        before = image.traffic()
        (image.top / "file").read_bytes()
        assert image.traffic().since(before).read >= MEGABYTE
        image.renew()
        assert not list(image.top.iterdir())
    assert not list(tmp_path.iterdir())
