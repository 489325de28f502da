"""Fixtures for the tests of other libraries' interfaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from git_envhist.compat.praisonai.service import CheckpointService

Begin = Callable[..., CheckpointService]


@pytest.fixture(autouse=True)
def workers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture without worker processes: a fork of the large test process costs more than the capture.

    Tests that start a host program remove the variable, so that the program uses its own workers.
    """
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Return one event loop for all tests, so that its threads are started once."""
    made = asyncio.new_event_loop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


@pytest.fixture
def run(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return a function that runs a coroutine to its end."""
    return loop.run_until_complete


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Create a directory without git."""
    made = tmp_path / "workspace"
    made.mkdir()
    return made


@pytest.fixture
def begin(workspace: Path, tmp_path: Path, run: Callable[[Any], Any]) -> Begin:
    """Return a function that creates an initialized service for the workspace."""

    def make(directory: Path = workspace, **options: Any) -> CheckpointService:
        service = CheckpointService(str(directory), str(tmp_path / "storage"), **options)
        assert run(service.initialize()) is True
        return service

    return make
