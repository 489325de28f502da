"""Two processes trust each other only if both are restricted in the same way."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from socket import socketpair

import pytest

from git_envhist import peers
from git_envhist.handlers import agent_client
from git_envhist.watcher.start import why_unavailable

BEYOND_SELECT = 1024
PR_SET_NO_NEW_PRIVS = 38


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


def test_process_that_cannot_gain_privileges_recognises_none() -> None:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            one, _other = socketpair()
            os._exit(int(peers.is_alike(one) or not why_unavailable()))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_peer_is_recognised_in_a_process_with_many_open_files(many_open_files: None) -> None:
    one, other = socketpair()
    with one, other:
        assert peers.is_alike(one)
        assert agent_client.has_same_restrictions(one)
