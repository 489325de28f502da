"""Versions of packages, as far as they can be compared without knowing who made them (pure)."""

from __future__ import annotations

import re
from itertools import zip_longest

NUMBERS = re.compile(r"v?([0-9]{1,12}(?:\.[0-9]{1,12}){0,7})\Z")
BOUND = re.compile(r"(===|==|~=|!=|<=|>=|<|>)(.+)\Z")


def same_version(one: str, other: str) -> bool | None:
    """Whether two versions are one: `1.0` is `1.0.0`; None where that cannot be told."""
    one, other = _plain(one), _plain(other)
    if one == other:
        return True
    order = _compare(one, other)
    # Of two spellings that are no plain numbers at least one would have to be understood.
    return None if order is None else order == 0


def satisfies(version: str, asked: str) -> bool | None:
    """Whether a version is what was asked for (`>=3,<4`); None where that cannot be told."""
    answers = [_is_within(_plain(version), bound) for bound in asked.split(",") if bound]
    if False in answers:
        return False
    return None if None in answers else True


def _is_within(version: str, bound: str) -> bool | None:
    found = BOUND.match(bound)
    if found is None:
        # npm names one version by itself.
        return same_version(version, bound) if NUMBERS.match(bound) and bound.count(".") == 2 else None
    word, wanted = found[1], found[2]
    if word == "===":
        return version == wanted or None
    if wanted.endswith(".*"):
        same = _begins(version, wanted[:-2])
        return same if word == "==" or same is None else (not same if word == "!=" else None)
    order = _compare(version, wanted)
    if order is None:
        return True if word == "==" and version == wanted else None
    if word == "~=":
        return order >= 0 and _begins(version, wanted.rpartition(".")[0])
    return {
        "==": order == 0,
        "!=": order != 0,
        "<=": order <= 0,
        ">=": order >= 0,
        "<": order < 0,
        ">": order > 0,
    }[word]


def _begins(version: str, start: str) -> bool | None:
    numbers, wanted = _numbers(version), _numbers(start)
    if numbers is None or wanted is None:
        return None
    return (*numbers, *(0,) * len(wanted))[: len(wanted)] == wanted


def _compare(one: str, other: str) -> int | None:
    numbers, others = _numbers(one), _numbers(other)
    if numbers is None or others is None:
        return None
    pairs = list(zip_longest(numbers, others, fillvalue=0))
    return next((1 if left > right else -1 for left, right in pairs if left != right), 0)


def _numbers(version: str) -> tuple[int, ...] | None:
    found = NUMBERS.match(version)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _plain(version: str) -> str:
    """Without what somebody's build added."""
    return version.strip().lower().partition("+")[0]
