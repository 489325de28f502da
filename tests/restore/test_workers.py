"""Workers process each piece exactly once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import chain

import pytest

from git_envhist.errors import EnvhistError
from git_envhist.platform import core_count
from git_envhist.workers import MAX_AT_ONCE, WORTH_A_PROCESS, portion_size, share_out

forked = pytest.mark.skipif(core_count() < 2, reason="one core has no workers")


@pytest.mark.parametrize("how", ["fork", "here"])
def test_each_piece_is_done_once_with_its_result_in_order(how: str) -> None:
    def do(done: list[int], piece: int) -> int:
        done.append(piece)
        return -piece

    # The pieces are so small that all workers request the next one at the same time.
    for _ in range(20):
        results, each = share_out(range(2000), list[int], do, lambda done: done, how=how)
        assert results == [-piece for piece in range(2000)]
        assert set(Counter(chain.from_iterable(each)).values()) == {1}


@forked
def test_killed_worker_is_reported() -> None:
    def do(_: None, piece: int) -> None:
        if piece == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(EnvhistError, match="a worker of the restore was killed"):
        share_out(range(20_000), lambda: None, do, lambda _: None, how="fork")


@forked
def test_error_of_a_worker_is_raised_in_the_parent() -> None:
    def do(_: None, piece: int) -> None:
        if piece >= 7:
            raise PermissionError(13, "not yours", str(piece))

    with pytest.raises(PermissionError, match="not yours"):
        share_out(range(20_000), lambda: None, do, lambda _: None, how="fork")


@pytest.mark.parametrize("how", ["fork", "here"])
def test_meanwhile_runs_once_in_the_parent(how: str) -> None:
    done: list[int] = []
    results, _ = share_out(
        range(9),
        lambda: None,
        lambda _, piece: piece,
        lambda _: None,
        how=how,
        meanwhile=lambda: done.append(os.getpid()),
    )
    assert results == list(range(9))
    assert done == [os.getpid()]


@pytest.mark.parametrize("how", ["fork", "here"])
def test_error_of_meanwhile_fails_everything(how: str) -> None:
    def fail() -> None:
        raise PermissionError(13, "not yours")

    with pytest.raises(PermissionError, match="not yours"):
        share_out(range(9), lambda: None, lambda _, piece: piece, lambda _: None, how=how, meanwhile=fail)


def test_work_is_split_so_that_no_worker_gets_a_large_last_portion() -> None:
    assert portion_size(1) == portion_size(WORTH_A_PROCESS) == WORTH_A_PROCESS
    assert portion_size(1 << 20) == MAX_AT_ONCE
    # With portions of 256, one of two processes would have the last quarter of 1,000 files alone.
    assert 1000 / portion_size(1000) >= 3 * min(2, core_count())
