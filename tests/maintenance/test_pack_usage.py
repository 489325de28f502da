"""Choosing packs to rewrite: unreachable objects are kept for their time, in few packs."""

from __future__ import annotations

from git_envhist.maintenance.pack_usage import (
    DELTIFIED,
    SET_APART,
    WEEK,
    PackUsage,
    RepackPolicy,
    choose_packs_to_rewrite,
    packs_to_set_apart,
    times_of,
)

DAY = 24 * 3600.0
NOW = 1000 * WEEK + 3 * DAY + 5
POLICY = RepackPolicy(keep_since=NOW - 14 * DAY, thorough=False)


def apart(days_ago: float) -> PackUsage:
    return PackUsage(f"apart {days_ago}", 100, NOW - days_ago * DAY, SET_APART, 0, (b"dead",))


def chosen(*packs: PackUsage) -> set[str]:
    return {pack.path for pack in choose_packs_to_rewrite(packs, POLICY)}


def test_packs_of_captures_are_chosen_at_any_age() -> None:
    fresh = PackUsage("fresh", 100, NOW, "", 100, ())
    large = PackUsage("large", 700, NOW, DELTIFIED, 700, ())
    assert chosen(fresh, large) == {"fresh"}
    assert chosen(fresh, PackUsage("larger", 1700, NOW, DELTIFIED, 1700, ())) == set()


def test_unreachable_pack_is_removed_after_its_time() -> None:
    assert chosen(apart(1), apart(15)) == {"apart 15"}


def test_many_unreachable_packs_of_this_week_become_one() -> None:
    assert chosen(apart(0), apart(1), apart(2)) == set()
    assert len(chosen(apart(0), apart(1), apart(2), apart(2.5))) == 4


def test_two_unreachable_packs_of_an_earlier_week_become_one() -> None:
    assert chosen(apart(0), apart(9), apart(10)) == {"apart 9", "apart 10"}


def test_no_pack_spans_more_than_a_week() -> None:
    young = PackUsage("young", 100, NOW, DELTIFIED, 50, (b"other",))
    packs = [apart(4), apart(5), apart(11), apart(12), young]
    groups = packs_to_set_apart(packs, POLICY)
    assert [[pack.path for pack in group] for group in groups] == [
        ["apart 12", "apart 11"],
        ["apart 5", "apart 4"],
        ["young"],
    ]


def test_unreachable_packs_stay_few_and_at_most_three_weeks() -> None:
    packs: list[PackUsage] = []
    for day in range(60):
        policy = RepackPolicy(NOW + day * DAY - 14 * DAY, thorough=False)
        packs.append(PackUsage("new", 100, NOW + day * DAY, SET_APART, 0, (b"%d" % day,)))
        going = choose_packs_to_rewrite(packs, policy)
        groups = packs_to_set_apart(going, policy)
        kept = [pack for pack in packs if pack not in going]
        for group in groups:
            dead = tuple(oid for pack in group for oid in pack.dead)
            used, oldest = map(float, times_of(group).split()[1:])
            kept.append(PackUsage("one", 100, used, SET_APART, 0, dead, oldest))
        packs = kept
        oldest = min(int(oid) for pack in packs for oid in pack.dead)
        assert len(packs) <= 7
        assert day - oldest <= 21
        assert {int(oid) for pack in packs for oid in pack.dead} >= set(range(max(0, day - 13), day + 1))


def test_daily_runs_keep_packs_few_and_copy_each_byte_few_times() -> None:
    packs: list[PackUsage] = []
    copied = 0
    for _ in range(256):
        fresh = PackUsage("fresh", 100, NOW, "", 100, ())
        joined = [pack for pack in choose_packs_to_rewrite([*packs, fresh], POLICY) if pack.kind]
        packs = [pack for pack in packs if pack not in joined]
        if joined:
            size = sum(pack.size for pack in joined)
            copied += size
            packs.append(PackUsage(f"joined {size}", size, NOW, DELTIFIED, size, ()))
        packs.append(PackUsage(f"packed {len(packs)}", 100, NOW, DELTIFIED, 100, ()))
        assert len(packs) <= 9
    assert copied < 256 * 100 * 9
