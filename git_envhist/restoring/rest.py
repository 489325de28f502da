"""What a restore does besides the files, while its journal still stands: whoever is killed here can go on with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.model import EnvPath, PlanStep, Snapshot
from git_envhist.restoring.head import Move, carry_out, catch_up, go_back, plan_move, remembered
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.store.gitview import GitStatus

HEAD, ORIGIN = "head", "origin"
"""The words of a journal for it."""


class FollowUp(NamedTuple):
    """Where HEAD goes, as it is remembered, and the place that is no longer to be named; empty where there is none."""

    head: str = ""
    origin: str = ""

    @classmethod
    def read(cls, notes: Mapping[str, object]) -> FollowUp:
        """What a journal says of it."""
        return cls(str(notes.get(HEAD) or ""), str(notes.get(ORIGIN) or ""))

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """What is to be said of it in a journal."""
        return tuple((word, told) for word, told in ((HEAD, self.head), (ORIGIN, self.origin)) if told)

    def do(self, here: CapturePipeline, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
        """All of it; which of the paths that came name this place now."""
        if self.head:
            carry_out(here.repository, Move.read(self.head))
        return self._relocate(here, steps)

    def catch_up(self, here: CapturePipeline, steps: Iterable[PlanStep]) -> Iterator[str]:
        """What of it is not done yet; why HEAD was not moved, where something would be lost by now."""
        if self.head:
            yield from catch_up(here.repository, self.head)
        self._relocate(here, steps)

    def take_back(self, here: CapturePipeline, before: Snapshot) -> Iterator[str]:
        """Where HEAD was moved already, back to where it was; the files that were rewritten are gone."""
        if self.head:
            yield from go_back(here.repository, self.head, before)

    @property
    def words(self) -> str | None:
        """Where HEAD is then; None where it does not move."""
        return str(Move.read(self.head)) if self.head else None

    def _relocate(self, here: CapturePipeline, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
        from git_envhist.forking.adopting import relocate_here  # loaded late: hardly any restore needs it

        return relocate_here(here, self.origin, steps) if self.origin else ()


def plan_rest(here: CapturePipeline, target: Snapshot, view: GitStatus, wish: RestoreOptions) -> FollowUp:
    """What is wished besides the files; `Refused` where it cannot be had."""
    head = plan_move(here.repository, target, view, force=wish.force) if wish.head else None
    origin = ""
    if wish.relocate:
        from git_envhist.forking.adopting import original_root  # loaded late: hardly any restore needs it

        origin = original_root(here, target)
    return FollowUp(remembered(head) if head else "", origin)
