"""Two processes trust each other only if both are restricted in the same way."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from socket import socketpair

import pytest

from git_envhist import peers
from git_envhist.handlers import agent_client

BEYOND_SELECT = 1024


@pytest.fixture
def many_open_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2 * BEYOND_SELECT:
        pytest.skip("needs more open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2 * BEYOND_SELECT), before[1]))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] <= BEYOND_SELECT:
            opened.append(os.dup(opened[0]))
        yield
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_peer_is_recognised_in_a_process_with_many_open_files(many_open_files: None) -> None:
    one, other = socketpair()
    with one, other:
        assert peers.is_alike(one)
        assert agent_client.has_same_restrictions(one)
