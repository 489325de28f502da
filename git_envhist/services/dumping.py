"""Asks each service for its state before a capture: best effort, within bounds, while no lock is held."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import IO

from git_envhist.facts.dumps import describe
from git_envhist.services.commands import UNDER_WAY, ServiceCommandContext, run_into
from git_envhist.services.states import NONE, Dump, Dumps
from git_envhist.settings import Service, Settings
from git_envhist.store.locks import state_directory
from git_envhist.system import free_bytes

KEPT_FREE = 10
"""A tenth of the disk is never taken by what is only on its way."""
SECONDS = 60.0
"""So long a capture waits for one service; it waits for all of them before it begins."""
EMPTY = "it gave nothing"


@contextmanager
def dump_services(
    services: Iterable[Service], way: ServiceCommandContext, settings: Settings, state: str
) -> Iterator[Dumps]:
    """The states of services, for as long as the context is open."""
    asked = [service for service in services if service.dump is not None]
    # A dump that captures is not dumped again.
    if not asked or way.environ.get(UNDER_WAY):
        yield NONE
        return
    with ExitStack() as stack:
        taken, failed = [], []
        for service in asked:
            file = stack.enter_context(TemporaryFile(dir=state_directory(state)))
            why = _dump(service, way, settings, state, file)
            if why is None:
                taken.append(Dump(service.name, file, describe(service.name, file)))
            else:
                failed.append((service.name, why))
        yield Dumps(tuple(taken), tuple(failed))


def _dump(
    service: Service, way: ServiceCommandContext, settings: Settings, state: str, file: IO[bytes]
) -> str | None:
    assert service.dump is not None
    room = free_bytes(state, KEPT_FREE)
    most = settings.budget if room is None else min(settings.budget, room)
    why = run_into(way, service.name, service.dump, file, most)
    if why is None and not os.fstat(file.fileno()).st_size:
        return EMPTY
    return why
