"""The plan: its steps, their order, and skipped paths."""

from __future__ import annotations

from collections.abc import Mapping

from git_envhist.diff.snapshot_walker import differing_directories
from git_envhist.git.process import Git
from git_envhist.model import EnvPath, PlanAction, RestorePlan, StoredAs
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.restore.plan_steps import PlanRules, SkipReason, make_plan
from tests.support.repository import Repo
from tests.support.snapshots import Described, Tree, directory, fifo, file, link, write_snapshot

Roots = Mapping[str, Tree]


def plan(
    repo: Repo, before: Tree | None, after: Tree, rules: PlanRules | None = None, **more: Roots
) -> RestorePlan:
    ids = [
        None if tree is None else bytes.fromhex(write_snapshot(repo.path, tree, **more))
        for tree in (before, after)
    ]
    assert ids[1] is not None
    contents = ObjectReader(
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    try:
        return make_plan(list(differing_directories(contents, ids[0], ids[1])), rules)
    finally:
        contents.close()


def told(plan: RestorePlan) -> list[tuple[str, bytes]]:
    return [(step.action.value, step.path) for step in plan.steps]


def left(plan: RestorePlan) -> dict[bytes, str]:
    return {item.path: item.why for item in plan.skipped}


def keeping(**why: str) -> PlanRules:
    reasons = {EnvPath(path.replace("_", "/").encode()): reason for path, reason in why.items()}
    return PlanRules(keep=lambda path, directory: reasons.get(path))


def named(number: int, content: bytes = b"x", **more: object) -> Described:
    return file(content, words=b"l=%x" % number, **more)


def test_removals_come_first_and_deepest_first(repo: Repo) -> None:
    before = {b"a/b/c": file(), b"a/d": file(), b"z": file(b"1")}
    found = plan(repo, before, {b"z": file(b"2"), b"n": link(b"t")})
    goes = [("remove", b"a/b/c"), ("remove", b"a/b"), ("remove", b"a/d"), ("remove", b"a")]
    assert told(found) == [*goes, ("write", b"n"), ("replace", b"z")]


def test_new_directory_is_one_step_with_its_contents(repo: Repo) -> None:
    found = plan(repo, {}, {b"d/e/f": file(), b"d/g": fifo(), b"d/h": directory()})
    assert told(found) == [("write", b"d")]
    assert {entry.path for entry in found.steps[0].below} == {b"d/e", b"d/e/f", b"d/g", b"d/h"}
    assert found.counts[PlanAction.WRITE] == 5


def test_file_with_equal_contents_is_adjusted(repo: Repo) -> None:
    before = {b"a": file(b"x", mtime_ns=5), b"b": file(b"x", 0o600), b"same": file(b"s")}
    after = {b"a": file(b"x", mtime_ns=6), b"b": file(b"x", 0o644), b"same": file(b"s")}
    found = plan(repo, before, after)
    assert told(found) == [("adjust", b"a"), ("adjust", b"b")]


def test_directory_metadata_is_set_again_when_entries_change(repo: Repo) -> None:
    found = plan(repo, {b"d/a": file(b"1"), b"e/b": file(b"1")}, {b"d/a": file(b"2"), b"e/b": file(b"1")})
    assert [own.path for own in found.directories] == [b"d"]


def test_skipped_path_keeps_its_directories(repo: Repo) -> None:
    before = {b"d/kept": file(), b"d/goes": file(), b"e/f/kept": file(), b"g": file(b"1")}
    rules = keeping(d_kept="excluded", e_f="a mount point")
    found = plan(repo, before, {b"g": file(b"2"), b"d": file(b"a file now")}, rules)
    assert told(found) == [("remove", b"d/goes"), ("replace", b"g")]
    assert left(found) == {b"d/kept": "excluded", b"e/f": "a mount point", b"d": SkipReason.HOLDS_SKIPPED}


def test_paths_that_the_target_did_not_capture_are_skipped(repo: Repo) -> None:
    unknown = Described(content=None, stored=StoredAs.FINGERPRINT, words=b"h=00")
    before = {b"a": file(b"here"), b"d/b": file(b"here"), b"new/c": file()}
    after = {b"a": unknown, b"d/b": Described(content=None), b"fresh/d": unknown, b"fresh/e": file()}
    found = plan(repo, before, after)
    assert left(found) == {
        b"a": SkipReason.NOT_CAPTURED,
        b"d/b": SkipReason.NOT_CAPTURED,
        b"fresh/d": SkipReason.NOT_CAPTURED,
    }
    assert told(found) == [("remove", b"new/c"), ("remove", b"new"), ("write", b"fresh")]
    assert [entry.path for entry in found.steps[-1].below] == [b"fresh/e"]


def test_path_whose_contents_are_not_saved_is_skipped(repo: Repo) -> None:
    before = {b"a": Described(content=None), b"d/b": Described(content=None)}
    found = plan(repo, before, {b"a": file(b"target")})
    assert told(found) == []
    assert left(found) == {b"a": SkipReason.NOT_SAVED, b"d/b": SkipReason.NOT_SAVED}


def test_new_paths_are_kept_on_request(repo: Repo) -> None:
    before = {b"new/deep/f": file(), b"d/new": file(), b"d/old": file(b"1"), b"turned/x": file()}
    after = {b"d/old": file(b"2"), b"back": file(), b"turned": file()}
    found = plan(repo, before, after, PlanRules(keep_new=True))
    assert told(found) == [("write", b"back"), ("replace", b"d/old")]
    assert left(found) == {
        b"new": SkipReason.NEW,
        b"d/new": SkipReason.NEW,
        b"turned/x": SkipReason.NEW,
        b"turned": SkipReason.HOLDS_SKIPPED,
    }


def test_private_directory_is_skipped(repo: Repo) -> None:
    found = plan(repo, {b".envhist-restore/x": file()}, {b".envhist-restore": file(), b"f": file()})
    assert told(found) == [("write", b"f")]
    assert left(found)[b".envhist-restore"] == SkipReason.OWN_FILES


def test_renumbered_hard_links_are_unchanged(repo: Repo) -> None:
    before = {b"a": named(1), b"d/b": named(1), b"c": file(b"1")}
    after = {b"a": named(9), b"d/b": named(9), b"c": file(b"2")}
    assert told(plan(repo, before, after)) == [("replace", b"c")]


def test_all_names_of_a_changed_hard_link_are_written(repo: Repo) -> None:
    both = {b"a": named(1), b"d/b": named(1)}
    apart = {b"a": file(b"x"), b"d/b": file(b"x")}
    every = [("replace", b"a"), ("replace", b"d/b")]
    assert told(plan(repo, both, apart)) == every
    assert told(plan(repo, apart, both)) == every
    assert told(plan(repo, both, {b"a": named(1, mode=0o600), b"d/b": named(1, mode=0o600)})) == every
    assert told(plan(repo, both, {**both, b"e/c": named(1)})) == [*every, ("write", b"e")]


def test_removed_hard_link_leaves_the_other_names_unchanged(repo: Repo) -> None:
    both = {b"a": named(1), b"d/b": named(1)}
    assert told(plan(repo, {**both, b"c": named(1)}, both)) == [("remove", b"c")]


def test_two_pairs_of_hard_links_differ_from_four_names_of_one_file(repo: Repo) -> None:
    before = {name: named(1) for name in (b"a", b"b", b"c", b"d")}
    after = {b"a": named(1), b"b": named(1), b"c": named(2), b"d": named(2)}
    assert {path for _, path in told(plan(repo, before, after))} >= {b"c", b"d"} or {b"a", b"b"}
    assert len(told(plan(repo, before, after))) >= 2


def test_database_log_is_removed_before_and_written_after_the_database(repo: Repo) -> None:
    before = {b"x.db": file(b"1"), b"x.db-wal": file(b"1"), b"x.db-journal": file(b"1"), b"y-wal": file(b"1")}
    after = {b"x.db": file(b"2"), b"x.db-wal": file(b"2"), b"y-wal": file(b"2")}
    found = plan(repo, before, after)
    assert told(found) == [
        ("remove", b"x.db-wal"),
        ("remove", b"x.db-journal"),
        ("replace", b"x.db"),
        ("write", b"x.db-wal"),
        ("replace", b"y-wal"),
    ]
    assert len({step.unit for step in found.steps[:4]}) == 1
    assert found.steps[0].unit is not None
    assert found.steps[4].unit is None


def test_additional_root_is_planned(repo: Repo) -> None:
    found = plan(repo, None, {b"f": file()}, roots={"etc": {b"conf": file(b"c"), b"d/e": file()}})
    assert {step.shown for step in found.steps} == {b"f", b"etc://conf", b"etc://d"}


def test_root_that_the_target_did_not_have_is_skipped(repo: Repo) -> None:
    with_root = bytes.fromhex(write_snapshot(repo.path, {b"a": file(b"1")}, roots={"etc": {b"conf": file()}}))
    without = bytes.fromhex(write_snapshot(repo.path, {b"a": file(b"2")}))
    contents = ObjectReader(
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    found = make_plan(differing_directories(contents, with_root, without))
    contents.close()
    assert told(found) == [("replace", b"a")]
    assert left(found) == {b"etc://": SkipReason.NOT_CAPTURED}
