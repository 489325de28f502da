"""Facts of two moments, less those of places that could not be read at one of them: these are not known (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.model import UNREAD, EnvPath, Fact

DUMP, FAILED = "dump", "failed"
WITH_PLACES = ("sqlite",)
"""Probes that say it of one file, and go on with the others of its directory."""


def without_unread(facts: tuple[list[Fact], list[Fact]]) -> tuple[list[Fact], list[Fact]]:
    """The same two, each less what the other may have and could not tell."""
    facts = _with_known_states(facts)
    everything = [fact for side in facts for fact in side]
    directories = {(fact.probe, fact.at) for fact in everything if is_of_directory(fact)}
    places = {(fact.probe, _place(fact)) for fact in everything if _is_of_place(fact)}
    if not directories and not places:
        return facts

    def known(side: Iterable[Fact]) -> list[Fact]:
        return [fact for fact in side if _is_unread(fact) or not _is_in(fact, directories, places)]

    return known(facts[0]), known(facts[1])


def _with_known_states(facts: tuple[list[Fact], list[Fact]]) -> tuple[list[Fact], list[Fact]]:
    """Leave out the dumps of services that one side does not have, or has in another format; say that one failed."""
    if not any(fact.probe == DUMP for side in facts for fact in side):
        return facts
    unknown = {_place(fact) for side in facts for fact in side if _is_status(fact)}
    failed = {_place(fact) for fact in facts[1] if _is_status(fact) and fact.value == FAILED}
    # The digest says more only where the tables and keys say nothing.
    counted = {_place(fact) for side in facts for fact in side if fact.probe == DUMP and not fact.auto}

    def is_told(fact: Fact) -> bool:
        if fact.probe != DUMP:
            return True
        place = _place(fact)
        if place in unknown:
            return place in failed and _is_status(fact)
        return not fact.auto or place not in counted

    return [fact for fact in facts[0] if is_told(fact)], [fact for fact in facts[1] if is_told(fact)]


def _is_status(fact: Fact) -> bool:
    return fact.probe == DUMP and fact.key.endswith("/.")


def is_of_directory(fact: Fact) -> bool:
    """Whether a fact says that nothing is known of its directory."""
    place = fact.at.decode("utf-8", "surrogateescape")
    # What a list asks for names the probe that it is about.
    return fact.key == (f"{place}/{UNREAD}" if place else UNREAD) and not fact.by


def _is_of_place(fact: Fact) -> bool:
    return fact.probe in WITH_PLACES and fact.key.endswith("/" + UNREAD)


def _is_unread(fact: Fact) -> bool:
    return is_of_directory(fact) or _is_of_place(fact)


def _is_in(fact: Fact, directories: set[tuple[str, EnvPath]], places: set[tuple[str, str]]) -> bool:
    return (fact.probe, fact.at) in directories or (fact.probe, _place(fact)) in places


def _place(fact: Fact) -> str:
    return fact.key.rpartition("/")[0]
