"""A revision names one snapshot, lists the candidates, or is an error with a hint."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from git_envhist.errors import AmbiguousRevision, EnvhistError, SnapshotNotFound, UsageError
from git_envhist.history.resolve import WORKING_TREE, locate, resolve, resolve_end
from git_envhist.history.timeline import Catalog, Timeline
from tests.history.snapshots import NOW, hex_id, named, snapshot, verdict, world

CODE = "c0de" * 10
OTHER_CODE = "0c0d" * 10

WORKING = snapshot("working version, app healthy", "10:27:10", verdicts=(verdict("pass"),), head=CODE)
BROKEN = snapshot("after package install", "10:18:03", verdicts=(verdict("fail"),), head=CODE)
BEFORE = snapshot("before auth refactor", "10:11:00", names=("before-refactor",), head=OTHER_CODE)
CLEAN = snapshot("clean clone", "2026-11-17 18:02:00", verdicts=(verdict("pass"),), head=OTHER_CODE)
MORNING = world(WORKING, BROKEN, BEFORE, CLEAN, commits={"HEAD": CODE, "HEAD~1": OTHER_CODE, "main": CODE})


def found(text: str, where: Catalog = MORNING) -> str:
    return resolve(text, where, NOW).intent


def refused(text: str, where: Catalog = MORNING) -> EnvhistError:
    with pytest.raises(EnvhistError) as failure:
        resolve(text, where, NOW)
    return failure.value


def hint(text: str, where: Catalog = MORNING) -> str:
    failure = refused(text, where)
    assert isinstance(failure, SnapshotNotFound)
    assert failure.exit_code == 4
    return failure.hint or ""


def candidates(text: str, where: Catalog) -> list[str]:
    failure = refused(text, where)
    assert isinstance(failure, AmbiguousRevision)
    return [candidate.split(" ", 1)[0] for candidate in failure.candidates]


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("@", "working version, app healthy"),
        ("@~", "after package install"),
        ("@~3", "clean clone"),
        ("@~1~1", "before auth refactor"),
        (WORKING.id, "working version, app healthy"),
        (WORKING.id[:4], "working version, app healthy"),
        (WORKING.id[:9].upper(), "working version, app healthy"),
        ("before-refactor", "before auth refactor"),
        ("before-refactor~1", "clean clone"),
        ("good", "working version, app healthy"),
        ("good@{1}", "working version, app healthy"),
        ("good@{2}", "clean clone"),
        ("bad", "after package install"),
        ("bad~2", "clean clone"),
        ("@{10:27}", "working version, app healthy"),
        ("10:27", "working version, app healthy"),
        ("10:26", "after package install"),
        ("10:18:02", "before auth refactor"),
        ("@{2026-11-18 10:17}", "before auth refactor"),
        ("@{2026-11-17}", "clean clone"),
        ("yesterday", "clean clone"),
        ("2026-11-17 18:02~0", "clean clone"),
        ("10m", "after package install"),
        ("15 minutes ago", "before auth refactor"),
        ("10m~1", "before auth refactor"),
        ("@{now}", "working version, app healthy"),
        (":/auth refactor", "before auth refactor"),
        (":/package~2", "clean clone"),
        (":/e", "working version, app healthy"),
        ("laptop/app-1a2b3c", "working version, app healthy"),
        ("laptop/app-1a2b3c~2", "before auth refactor"),
        ("laptop/app-1a2b3c@{10:20}", "after package install"),
        ("HEAD", "working version, app healthy"),
        ("HEAD~1", "before auth refactor"),
        ("main", "working version, app healthy"),
    ],
)  # fmt: skip
def test_each_spelling_of_the_grammar_finds_its_snapshot(text: str, intent: str) -> None:
    assert found(text) == intent


def test_working_tree_is_an_end_of_a_range_but_not_a_snapshot() -> None:
    assert resolve_end("now", MORNING, NOW) == WORKING_TREE
    assert isinstance(refused("now"), UsageError)


def test_copied_or_claimed_verdict_is_not_good() -> None:
    carried = snapshot("b", "10:20", verdicts=(verdict("fail"), verdict("pass", carried_from="0" * 40)))
    claimed = snapshot("c", "10:21", verdicts=(verdict("pass", claimed_by="x"),))
    changed = snapshot("d", "10:22", verdicts=(verdict("pass"), verdict("fail")))
    kept = snapshot(
        "a", "10:10", verdicts=(verdict("fail"), verdict("pass"), verdict("fail", claimed_by="x"))
    )
    where = world(changed, claimed, carried, kept)
    assert found("good", where) == "a"
    assert found("bad@{2}", where) == "b"


def test_rewritten_snapshot_is_found_by_its_id_and_by_its_new_hash() -> None:
    moved = snapshot("moved", id="ab" * 20, commit="cd" * 20)
    where = world(moved, snapshot("other"))
    assert found("abab", where) == found("cdcdcdcd", where) == found("cd" * 20, where) == "moved"


def test_sha256_id_is_found() -> None:
    assert found("ab" * 32, world(snapshot("long", id="ab" * 32))) == "long"


def test_ambiguous_id_lists_candidates_with_enough_digits() -> None:
    one, other = snapshot("one", id="abcdef0123" + "0" * 30), snapshot("other", id="abcdef0124" + "0" * 30)
    assert candidates("abcdef", world(one, other)) == ["abcdef0123", "abcdef0124"]
    assert found("abcdef0124", world(one, other)) == "other"


def test_two_snapshots_of_one_minute_are_listed_with_seconds() -> None:
    where = world(snapshot("second", "10:27:40"), snapshot("first", "10:27:05"), snapshot("older", "10:20"))
    failure = refused("10:27", where)
    assert isinstance(failure, AmbiguousRevision)
    assert [candidate.split(" ", 1)[1] for candidate in failure.candidates] == [
        "2026-11-18 10:27:40 second",
        "2026-11-18 10:27:05 first",
    ]
    assert isinstance(refused("@{10:27}", where), AmbiguousRevision)
    assert found("10:27:05", where) == "first"
    assert found("10:27:39", where) == "first"
    assert found("@{10:28}", where) == "second"


def test_day_means_its_end_with_any_number_of_snapshots() -> None:
    assert found("@{today}") == "working version, app healthy"


def test_printed_time_is_found_when_the_clock_was_set_back_later() -> None:
    where = world(snapshot("after", "10:00"), snapshot("fast clock", "10:20"), snapshot("before", "09:59"))
    assert found("10:20", where) == "fast clock"
    assert found("10:25", where) == "after"


def test_time_that_occurs_twice_lists_both_snapshots() -> None:
    night = [
        snapshot(text, f"2026-10-25 0{hours}:30:00", id=text * 40) for text, hours in (("b", 3), ("a", 2))
    ]
    again = snapshot("c", night[1].at.replace(fold=1), id="c" * 40)
    assert candidates("2026-10-25 02:30", world(night[0], again, night[1])) == ["ccccccc", "aaaaaaa"]
    assert found("2026-10-25 02:30:00+02:00", world(night[0], again, night[1])) == "a"
    assert found("2026-10-25 02:30", world(night[0], night[1])) == "a"


def test_whole_intent_is_found_before_a_part_of_one() -> None:
    where = world(
        snapshot("fix the build again", "10:20"), snapshot("fix the build", "10:10"), snapshot("fix")
    )
    assert found(":/fix the build", where) == "fix the build"
    assert found(":/the build", where) == "fix the build again"
    assert found(":/fix", where) == "fix"


def test_equal_intents_are_all_listed() -> None:
    one, two = snapshot("wip", "10:20"), snapshot("wip", "10:10")
    assert candidates(":/wip", world(one, two)) == [one.id[:7], two.id[:7]]


def test_a_hint_lists_the_newest_candidates_and_counts_the_rest() -> None:
    failure = refused(":/wip", world(*(snapshot("wip", f"09:{minute}") for minute in range(59, 29, -1))))
    assert isinstance(failure, AmbiguousRevision)
    assert len(failure.candidates) == 30
    assert (failure.hint or "").endswith("09:40:00 wip; and 10 more")


def test_intent_is_found_by_its_first_line_with_any_line_breaks() -> None:
    long = snapshot("\n\nfirst line \n  second line\n\nand a body", "10:10")
    where = world(snapshot("first line second line and more", "10:20"), long)
    assert found(":/first line   second line", where) == long.intent
    assert found(":/line and a", where := world(snapshot("x\nline\n\nand a body"))) == "x\nline\n\nand a body"
    assert isinstance(refused(":/First line", where), SnapshotNotFound)


def test_snapshot_without_an_intent_is_found_by_its_title() -> None:
    assert found(":/(no intent)", world(snapshot("x"), snapshot(" \n"))) == " \n"


def test_text_found_as_an_intent_is_not_split() -> None:
    where = world(
        snapshot("bump lib~2", "10:20"), snapshot("bump lib", "10:10"), snapshot("a"), snapshot("b")
    )
    assert found(":/bump lib~2", where) == "bump lib~2"
    assert found(":/lib~1~1", world(snapshot("bump lib", "10:10"), snapshot("a"), snapshot("b"))) == "b"


def test_name_belongs_to_the_snapshot_that_got_it_last() -> None:
    newer = snapshot("newer", "10:20", names=("stable", "x"), records=(named("stable", 9), named("x", 9)))
    older = snapshot("older", "10:10", names=("stable",), records=(named("stable", 5),))
    where = world(newer, older)
    assert found("stable", where) == "older"
    assert [moment.names for moment in where.own.snapshots] == [("x",), ("stable",)]


def test_removed_name_does_not_return_to_an_earlier_snapshot() -> None:
    newer = snapshot("newer", records=(named("stable", 5), named("stable", 4, removed=True)))
    older = snapshot("older", names=("stable",), records=(named("stable", 9),))
    where = world(newer, older)
    assert isinstance(refused("stable", where), SnapshotNotFound)
    assert where.own.snapshots[1].names == ()


def test_a_word_with_several_meanings_lists_them() -> None:
    by_name = snapshot("named", "10:10", names=("main", "10:20", "abcd", "laptop/app-1a2b3c"))
    by_time = snapshot("timed", "10:20", id="abcd" + "1" * 36)
    newest = snapshot("newest", "10:25", head=CODE)
    where = world(newest, by_time, by_name, commits={"main": CODE})
    assert candidates("main", where) == [by_name.id[:7], newest.id[:7]]
    assert candidates("10:20", where) == [by_name.id[:7], by_time.id[:7]]
    assert candidates("abcd", where) == [by_name.id[:7], by_time.id[:7]]
    assert candidates("laptop/app-1a2b3c", where) == [by_name.id[:7], newest.id[:7]]
    assert candidates("10:20~1", world(newest, by_time, by_name, snapshot("oldest", "09:00"))) != []


def test_several_meanings_of_one_snapshot_are_no_ambiguity() -> None:
    both = snapshot("both", "10:20", names=("main", "10:20"), head=CODE)
    assert found("main", world(both, snapshot("x"), commits={"main": CODE})) == "both"
    assert found("10:20", world(both, snapshot("x"))) == "both"


def test_name_is_preferred_to_a_time_between_two_snapshots() -> None:
    assert found("10m", world(snapshot("newest", "10:29"), snapshot("old", "09:00", names=("10m",)))) == "old"


def test_git_decides_a_code_revision_as_a_whole() -> None:
    where = world(
        snapshot("at the tip", "10:20", head=CODE),
        snapshot("in between", "10:15", head="f00d" * 10),
        snapshot("before", "10:10", head=OTHER_CODE),
        commits={
            "HEAD": CODE,
            "HEAD~1": OTHER_CODE,
            "main@{1}": OTHER_CODE,
            "HEAD~1~1": "f00d" * 10,
            "@~1": CODE,
        },
    )
    assert found("HEAD~1", where) == "before"
    assert found("main@{1}", where) == "before"
    assert found("HEAD~1~1", where) == "in between"
    assert found("@~1", where) == "in between"
    assert isinstance(refused("HEAD~2", where), SnapshotNotFound)


def test_word_that_git_resolves_to_a_snapshot_is_that_snapshot() -> None:
    assert found("envhist/x", world(WORKING, BROKEN, commits={"envhist/x": BROKEN.id})) == BROKEN.intent


def test_code_commit_without_a_snapshot_is_not_replaced_by_a_time_or_another_timelines_name() -> None:
    other = Timeline.of("box/app-ffffff", [snapshot("foreign", names=("10m",), timeline="box/app-ffffff")])
    where = world(WORKING, others={other.name: other}, commits={"10m": OTHER_CODE})
    assert "0c0d0c0" in hint("10m", where)


def with_other() -> Catalog:
    mine = [snapshot("mine newest", "10:20", names=("both",)), snapshot("mine", "10:10")]
    theirs = [
        snapshot("theirs newest", "10:15", timeline="box/app-ffffff", names=("both", "theirs")),
        snapshot("theirs", "10:05", timeline="box/app-ffffff"),
    ]
    others: Mapping[str, Timeline] = {
        "box/app-ffffff": Timeline.of("box/app-ffffff", theirs),
        "origin/laptop/app-1a2b3c": Timeline.of("origin/laptop/app-1a2b3c", mine[1:]),
    }
    return world(*mine, others=others)


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("box/app-ffffff", "theirs newest"),
        ("box/app-ffffff~1", "theirs"),
        ("box/app-ffffff@{10:05}", "theirs"),
        ("origin/laptop/app-1a2b3c", "mine"),
        (hex_id("box/app-fffffftheirs2026-11-18 10:05:00+01:00"), "theirs"),
        (hex_id("box/app-fffffftheirs newest2026-11-18 10:15:00+01:00")[:7] + "~1", "theirs"),
        ("theirs", "theirs newest"),
        ("theirs~1", "theirs"),
        ("both", "mine newest"),
        ("both~1", "mine"),
        ("10:15", "mine"),
    ],
)
def test_other_timelines_are_found_by_name_id_and_unused_names(text: str, intent: str) -> None:
    assert found(text, with_other()) == intent


def test_fetched_copy_of_an_own_snapshot_is_no_second_candidate() -> None:
    where = with_other()
    spot = locate(where.own.snapshots[1].id[:7], where, NOW)
    assert spot.timeline is where.own


@pytest.mark.parametrize(
    ("text", "where", "told"),
    [
        ("good", world(snapshot("a"), snapshot("b")), "to check one: git envlog verify @~1 -- <command>"),
        ("good", world(snapshot("a")), "to check one: git envlog verify @ -- <command>"),
        ("good", world(BROKEN), "no check passed yet, of 1 that ran: git envlog verify @"),
        ("good@{3}", MORNING, "only 2 passed: git envlog --verdict=pass"),
        ("bad@{2}~1", MORNING, "only 1 failed: git envlog --verdict=fail"),
        (".env.local", world(WORKING, paths=(".env.local",)), "show its changes: git envlog -- .env.local or"),
        ("my file", world(WORKING, paths=("my file",)), "restore it: git envrestore @ -- 'my file'"),
        ("@", world(), "git envlog capture"),
        ("@{10:27}", world(), "nothing was captured here yet: git envlog capture"),
        ("something", world(), "nothing was captured here yet: git envlog capture"),
        ("@{lunch}", MORNING, "a time is one of: 10:27"),
        ("laptop/app-1a2b3c@{lunch}", MORNING, "a time is one of: 10:27"),
        ("@{3}", MORNING, "a number of steps back is '@~3'"),
        ("@{2020-01-01}", MORNING, "the oldest snapshot is from 2026-11-17 18:02"),
        ("box/none@{10:27}", MORNING, "no timeline is named 'box/none'; to list them: git envlog --all"),
        ("@~9", MORNING, "the oldest is '@~3'"),
        ("box/app~1", world(others={"box/app": Timeline.of("box/app", [snapshot("a", timeline="box/app")])}),
         "'box/app' is the oldest of its timeline"),
        ("before-refactor~2", MORNING, "the oldest is 'before-refactor~1'"),
        ("@~3~1", MORNING, "'@~3' is the oldest of its timeline"),
        ("nothing~1", MORNING, "'git envlog --no-fold' lists every snapshot of this timeline"),
        ("before-refacter", MORNING, "did you mean 'before-refactor'?"),
        ("Good", MORNING, "did you mean 'good'?"),
        ("box/app", world(WORKING, others={"box/app": Timeline.of("box/app", [])}),
         "the timeline 'box/app' cannot be read"),
        ("9ac", MORNING, "an id takes at least 4 digits"),
        ("v1.2", world(WORKING, commits={"v1.2": OTHER_CODE}), "while code commit 0c0d0c0 was checked out"),
        ("v1~1", world(WORKING, commits={"v1~1": OTHER_CODE}), "while code commit 0c0d0c0 was checked out"),
        ("m@{1}", world(WORKING, commits={"m@{1}": OTHER_CODE}), "while code commit 0c0d0c0 was checked out"),
        ("good^", MORNING, "'^' asks git for parents; on a timeline it is '@~1'"),
        ("a..b", MORNING, "give one snapshot, not a range"),
        (":/Auth", MORNING, "upper and lower case differ"),
        ("25:61", MORNING, "a time is one of: 10:27"),
        ("good:a b", MORNING, "git envlog show good -- 'a b'; to restore it: git envrestore good -- 'a b'"),
    ],
)  # fmt: skip
def test_unknown_revision_has_a_hint_that_fits(text: str, where: Catalog, told: str) -> None:
    assert told in hint(text, where)
