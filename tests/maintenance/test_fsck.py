"""Damage of every kind is found and reported, all other data stays restorable, and git works after a repair."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.maintenance.gc import DAY, SHARES, check_some_packs
from git_envhist.model import Snapshot
from tests.cli.test_json import validate
from tests.end_to_end.captures import assert_holds
from tests.maintenance.test_collect import forget, packs_of, take_snapshot
from tests.objects.packing import damage, flip, noise
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


HELD: dict[str, Listing] = {}
"""The files of each snapshot as they were captured, by its id."""


def taken(repo: Repo, history: EnvHistory, intent: str) -> Snapshot:
    one = take_snapshot(history, intent)
    HELD[one.id] = listing(repo.path, top=True)
    return one


def assert_intact(repo: Repo, one: Snapshot) -> None:
    assert_holds(repo, one.commit, HELD[one.id])


def three_snapshots(repo: Repo, history: EnvHistory) -> list[Snapshot]:
    """Return snapshots, each with a separate file, in separate packs."""
    moments = []
    repo.write("kept", "in all of them\n" * 20)
    for number in range(3):
        repo.write(f"d/only-{number}", noise(3000, number))
        moments.append(taken(repo, history, f"moment {number}"))
        (repo.path / f"d/only-{number}").unlink()
    return moments


def opened(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def place_of(repo: Repo, oid: str) -> tuple[Path, int, int]:
    """Return the location of an object: its pack, offset and length."""
    for pack in packs_of(repo):
        for line in repo.git("verify-pack", "-v", str(pack)).splitlines():
            words = line.split()
            if words and words[0] == oid:
                return pack, int(words[4]), int(words[3])
    raise AssertionError(f"{oid} is in no pack")


def flip_in(repo: Repo, *names: str) -> Path:
    """Flip a bit in the middle of the packed bytes of some objects. Return the pack of the first."""
    places = [place_of(repo, repo.git("rev-parse", name)) for name in names]
    for pack, start, length in places:
        damage(pack, lambda content, at=start + length // 2 + 1: flip(content, at))  # type: ignore[misc]
    return places[0][0]


def assert_git_works(repo: Repo, tmp_path: Path) -> None:
    repo.git("fsck", "--full", "--strict", "--no-dangling")
    repo.git("gc", "-q", "--prune=now")
    repo.git("clone", "-q", "--mirror", ".", str(tmp_path / "mirror"))
    repo.git("init", "-q", "--bare", str(tmp_path / "bare"))
    repo.git("push", "-q", "--mirror", str(tmp_path / "bare"))


def test_intact_history_has_no_faults(repo: Repo, history: EnvHistory) -> None:
    three_snapshots(repo, history)
    for words in ((), ("--quick",), ("--repair",)):
        done = repo.run("git-envlog", "fsck", *words, check=True)
        assert done.out.startswith("no damage: 3 snapshots; ")
    output = json.loads(repo.run("git-envlog", "fsck", "--json", check=True).out)
    assert (output["whole"], output["moments"], output["faults"], output["broken"]) == (True, 3, [], [])


def test_damaged_snapshot_in_the_trash_is_reported(repo: Repo, history: EnvHistory) -> None:
    moments = three_snapshots(repo, history)
    repo.run("git-envlog", "drop", moments[1].id, check=True)
    flip_in(repo, f"{moments[1].commit}:d/only-1")
    assert "1 of 3 snapshots damaged" in repo.run("git-envlog", "fsck").out


def test_flipped_bit_is_reported_by_path_and_snapshot(
    repo: Repo, history: EnvHistory, tmp_path: Path
) -> None:
    moments = three_snapshots(repo, history)
    pack = flip_in(repo, f"{moments[1].commit}:d/only-1")

    assert repo.run("git-envlog", "fsck", "--quick").status == 0
    done = repo.run("git-envlog", "fsck")
    assert done.status == 1
    assert pack.name in done.out
    assert "d/only-1" in done.out
    assert moments[1].id[:7] in done.out
    assert moments[0].id[:7] not in done.out
    assert "1 of 3 snapshots damaged" in done.out
    assert "fsck --repair" in done.err

    validate("health", json.loads(repo.run("git-envlog", "fsck", "--json").out))

    mended = repo.run("git-envlog", "fsck", "--repair")
    assert mended.status == 0, mended.out + mended.err
    assert "set aside" in mended.out
    assert (repo.path / ".git/envhist/damaged" / pack.name).exists()
    assert [one.intent for one in opened(repo).log()] == ["moment 2", "moment 0"]
    assert [one.id for one in opened(repo).log()] == [moments[2].id, moments[0].id]
    assert_git_works(repo, tmp_path)
    for one in opened(repo).log():
        assert_intact(repo, one)
    assert opened(repo).read_file(moments[2].id, history.environment_path(b"d/only-2")) == noise(3000, 2)


@pytest.mark.parametrize("words", [(), ("--quick",)])
def test_snapshot_behind_a_damaged_one_is_counted_once_and_not_as_damaged(
    repo: Repo, history: EnvHistory, words: tuple[str, ...]
) -> None:
    moments = three_snapshots(repo, history)
    flip_in(repo, moments[1].commit)
    output = json.loads(repo.run("git-envlog", "fsck", "--json", *words).out)
    validate("health", output)
    assert [one["id"] for one in output["broken"]] == [moments[1].commit]
    assert (output["moments"], output["unreached"]) == (3, 1)
    done = repo.run("git-envlog", "fsck", *words)
    assert f"broken  {moments[1].commit[:7]}  cannot be read\n" in done.out
    assert "1 of 3 snapshots damaged; 1 intact, but cut off from the timeline; " in done.out


def test_objects_of_a_damaged_pack_are_counted_once(repo: Repo, history: EnvHistory) -> None:
    moments = three_snapshots(repo, history)
    whole = json.loads(repo.run("git-envlog", "fsck", "--json").out)
    flip_in(repo, f"{moments[1].commit}:d/only-1")
    output = json.loads(repo.run("git-envlog", "fsck", "--json").out)
    assert (output["lost_objects"], output["damaged_packs"]) == (1, 1)
    assert output["objects"] + output["lost_objects"] == whole["objects"]
    words = f"1 of 3 packs damaged; 1 of {whole['objects']} objects cannot be read\n"
    assert repo.run("git-envlog", "fsck").out.endswith(f"1 of 3 snapshots damaged; {words}")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_snapshots_without_a_ref_are_counted_as_cut_off(
    repo: Repo, history: EnvHistory, is_deleted: bool
) -> None:
    moments = three_snapshots(repo, history)
    ref = f"refs/envhist/heads/{history.timeline}"
    if is_deleted:
        repo.git("update-ref", "-d", ref)
    else:
        (repo.path / ".git" / ref).write_text("1" * 40 + "\n")
    output = json.loads(repo.run("git-envlog", "fsck", "--quick", "--json").out)
    assert (output["moments"], output["broken"], output["unreached"]) == (len(moments), [], 3)
    assert "0 of 3 snapshots damaged; 3 intact, but cut off" in repo.run("git-envlog", "fsck", "--quick").out


def test_repair_recovers_objects_from_the_working_tree(
    repo: Repo, history: EnvHistory, tmp_path: Path
) -> None:
    repo.write("big.bin", noise(9 << 20))
    repo.write("small", noise(500, 7))
    before = taken(repo, history, "one")
    piece = repo.git("ls-tree", "-r", "--format=%(objectname)", before.commit, ".envhist/pieces").split()[5]
    flip_in(repo, f"{before.commit}:small", piece)

    output = repo.run("git-envlog", "fsck")
    assert output.status == 1
    assert "small" in output.out
    assert "big.bin" in output.out
    mended = repo.run("git-envlog", "fsck", "--repair", check=True)

    assert "came back from the working tree" in mended.out
    assert [one.id for one in opened(repo).log()] == [before.id]
    assert_intact(repo, before)
    assert_git_works(repo, tmp_path)


def test_repair_recovers_objects_from_a_remote(repo: Repo, history: EnvHistory, tmp_path: Path) -> None:
    moments = three_snapshots(repo, history)
    repo.git("init", "-q", "--bare", str(tmp_path / "server"))
    repo.git("remote", "add", "origin", str(tmp_path / "server"))
    repo.run("git-envlog", "push", "--yes", check=True)
    flip_in(repo, f"{moments[0].commit}:d/only-0", f"{moments[1].commit}^{{tree}}")

    mended = repo.run("git-envlog", "fsck", "--repair", check=True)

    assert "came back from the remote 'origin'" in mended.out
    assert [one.commit for one in opened(repo).log()] == [one.commit for one in reversed(moments)]
    for one in moments:
        assert_intact(repo, one)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_pack_is_found_by_a_quick_check(
    repo: Repo, history: EnvHistory, tmp_path: Path, share: float
) -> None:
    moments = three_snapshots(repo, history)
    pack, _, _ = place_of(repo, repo.git("rev-parse", f"{moments[1].commit}:d/only-1"))
    os.chmod(pack, 0o644)
    with open(pack, "r+b") as file:
        file.truncate(int(pack.stat().st_size * share))

    quick = repo.run("git-envlog", "fsck", "--quick")
    assert quick.status == 1
    assert pack.name in quick.out
    mended = repo.run("git-envlog", "fsck", "--repair")

    assert mended.status == 0, mended.out + mended.err
    assert {"moment 2", "moment 0"} <= {one.intent for one in opened(repo).log()}
    assert_git_works(repo, tmp_path)


@pytest.mark.parametrize("where", ["ids", "offsets", "head", "end"])
def test_repair_of_a_damaged_index_loses_nothing(
    repo: Repo, history: EnvHistory, tmp_path: Path, where: str
) -> None:
    moments = three_snapshots(repo, history)
    pack, _, _ = place_of(repo, repo.git("rev-parse", f"{moments[1].commit}:d/only-1"))
    index = pack.with_suffix(".idx")
    count = (index.stat().st_size - 8 - 1024 - 40) // 28
    at = {"ids": 1032 + 5, "offsets": 1032 + count * 24 + 3, "head": 2, "end": index.stat().st_size - 3}[
        where
    ]
    damage(index, lambda content: flip(content, at))

    assert repo.run("git-envlog", "fsck").status == 1
    mended = repo.run("git-envlog", "fsck", "--repair", check=True)

    assert [one.id for one in opened(repo).log()] == [one.id for one in reversed(moments)], mended.out
    for one in opened(repo).log():
        assert_intact(repo, one)
    assert_git_works(repo, tmp_path)


@pytest.mark.parametrize("content", ["", "not a hash\n", "1234567890" * 4 + "\n"])
def test_repair_replaces_a_bad_ref_by_its_history(
    repo: Repo, history: EnvHistory, tmp_path: Path, content: str
) -> None:
    moments = three_snapshots(repo, history)
    ref = f"refs/envhist/heads/{history.timeline}"
    (repo.path / ".git" / ref).write_text(content)

    done = repo.run("git-envlog", "fsck", "--quick")
    assert done.status == 1
    assert ref in done.out
    mended = repo.run("git-envlog", "fsck", "--repair")

    assert mended.status == 0, mended.out + mended.err
    assert (repo.path / ".git/envhist/set-aside").is_dir()
    assert [one.id for one in opened(repo).log()] == [one.id for one in reversed(moments)]
    assert_git_works(repo, tmp_path)


def test_repair_drops_a_lost_snapshot_and_keeps_the_others(
    repo: Repo, history: EnvHistory, tmp_path: Path
) -> None:
    moments = three_snapshots(repo, history)
    flip_in(repo, moments[1].commit)

    done = repo.run("git-envlog", "fsck")
    assert done.status == 1
    assert moments[1].commit[:7] in done.out
    repo.run("git-envlog", "fsck", "--repair", check=True)

    assert [one.id for one in opened(repo).log()] == [moments[2].id, moments[0].id]
    assert_git_works(repo, tmp_path)


def test_repair_of_notes_keeps_everything_readable(repo: Repo, history: EnvHistory, tmp_path: Path) -> None:
    moments = three_snapshots(repo, history)
    history.name("first", moments[0])
    history.name("last", moments[2])
    notes = f"refs/notes/envhist/{history.timeline}"
    blob = repo.git("notes", f"--ref={notes}", "list", moments[0].commit)
    flip_in(repo, blob)

    assert repo.run("git-envlog", "fsck").status == 1
    repo.run("git-envlog", "fsck", "--repair", check=True)

    names = {one.intent: one.names for one in opened(repo).log()}
    assert names["moment 2"] == ("last",)
    assert len(names) == 3
    assert_git_works(repo, tmp_path)


@pytest.mark.parametrize("lost", ["", "^{tree}"])
@pytest.mark.parametrize("before", ["versions stand before it", "a rewrite was the last", "packed"])
def test_repair_of_notes_loses_no_name_with_one_object(
    repo: Repo, history: EnvHistory, tmp_path: Path, lost: str, before: str
) -> None:
    moments = three_snapshots(repo, history)
    for number, one in enumerate(moments):
        history.name(f"name {number}", one)
    history.attach(moments[0], tool_outputs=[{"said": "once"}])
    if before != "versions stand before it":
        history.drop(moments[1].id)
    if before == "packed":
        history.gc("now")
    notes = f"refs/notes/envhist/{history.timeline}"
    flip_in(repo, f"{notes}{lost}")
    assert repo.run("git-envlog", "fsck").status == 1

    repo.run("git-envlog", "fsck", "--repair", check=True)

    mended = opened(repo)
    kept = [moments[2], moments[0]] if before != "versions stand before it" else moments[::-1]
    assert [(one.id, one.names) for one in mended.log()] == [
        (one.id, (f"name {moments.index(one)}",)) for one in kept
    ]
    assert [dict(one) for one in mended.get(moments[0].id).tool_outputs] == [{"said": "once"}]
    assert_git_works(repo, tmp_path)


def test_repair_of_notes_leaves_other_writers_notes_to_them(repo: Repo, history: EnvHistory) -> None:
    """Another working tree has its own notes, also on a snapshot of this one."""
    moments = three_snapshots(repo, history)
    history.name("ours", moments[0])
    repo.git("worktree", "add", "-q", "../beside")
    beside = Repo(repo.path.parent / "beside", repo.env)
    beside.run("envlog", "capture", "theirs", check=True)
    beside.run("envlog", "note", moments[0].id, "-m", "said beside", check=True)
    notes = f"refs/notes/envhist/{history.timeline}"
    theirs = [
        ref for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/notes").split() if ref != notes
    ]
    assert "said beside" in repo.git("notes", f"--ref={theirs[0]}", "show", moments[0].commit)
    flip_in(repo, notes)

    repo.run("git-envlog", "fsck", "--repair", check=True)

    told = repo.git("notes", f"--ref={notes}", "show", moments[0].commit)
    assert ("ours" in told, "said beside" in told) == (True, False)


def test_repair_deletes_a_damaged_cache(repo: Repo, history: EnvHistory) -> None:
    three_snapshots(repo, history)
    shards = list((repo.path / ".git/envhist/cache").glob("shard-*"))
    damage(shards[0], lambda content: flip(content, len(content) // 2))

    done = repo.run("git-envlog", "fsck", "--quick")
    assert done.status == 1
    assert "cache" in done.out
    repo.run("git-envlog", "fsck", "--repair", check=True)
    assert_holds(repo, take_snapshot(opened(repo), "after").commit)


def test_missing_pack_is_found(repo: Repo, history: EnvHistory, tmp_path: Path) -> None:
    moments = three_snapshots(repo, history)
    pack, _, _ = place_of(repo, repo.git("rev-parse", f"{moments[1].commit}:d/only-1"))
    for path in pack.parent.glob(f"{pack.stem}.*"):
        path.unlink()
    shutil.rmtree(repo.path / ".git/envhist/indexes", ignore_errors=True)

    assert repo.run("git-envlog", "fsck", "--quick").status == 1
    mended = repo.run("git-envlog", "fsck", "--repair")

    assert mended.status == 0, mended.out + mended.err
    assert_git_works(repo, tmp_path)
    assert repo.run("git-envlog", "fsck").status == 0


def test_daily_check_reads_a_share_and_stores_problems(repo: Repo, history: EnvHistory) -> None:
    moments = three_snapshots(repo, history)
    for day in range(SHARES):
        check_some_packs(history.repository, day * DAY)
    assert history.problems == []
    pack = flip_in(repo, f"{moments[1].commit}:d/only-1")

    for day in range(SHARES):
        check_some_packs(history.repository, day * DAY)

    output = repo.run("git-envlog", check=True)
    assert pack.name in output.err
    assert "git envlog fsck" in output.err
    assert history.fsck(repair=True).is_whole
    assert repo.run("git-envlog", check=True).err == ""


def test_gc_keeps_objects_that_repair_set_aside(repo: Repo, history: EnvHistory) -> None:
    moments = three_snapshots(repo, history)
    only = f"{moments[1].commit}:d/only-1"
    shards = repo.git("ls-tree", "-r", "--format=%(objectname)", moments[1].commit, ".envhist").split()
    flip_in(repo, only)
    assert history.fsck(repair=True).is_whole

    history.gc("now")

    for oid in (moments[1].commit, *shards):
        repo.git("cat-file", "-e", oid)


ENDED = """\
#!/bin/sh
case " $* " in
*"--batch-check=%(objecttype) %(objectname) "*) '{real}' "$@" | head -n 5; kill -KILL $$ ;;
*) exec '{real}' "$@" ;;
esac
"""


def test_output_of_a_killed_git_is_ignored(repo: Repo, history: EnvHistory, tmp_path: Path) -> None:
    moments = three_snapshots(repo, history)
    ref = f"refs/envhist/heads/{history.timeline}"
    (repo.path / ".git" / ref).write_text("not a hash\n")
    program = tmp_path / "ended" / "git"
    program.parent.mkdir()
    program.write_text(ENDED.format(real=shutil.which("git", path=repo.env["PATH"])))
    program.chmod(0o755)
    path = os.pathsep.join((str(program.parent), repo.env["PATH"]))
    broken = repo.run("git-envlog", "fsck", "--repair", env={"PATH": path})
    assert broken.status == 128, broken.out
    assert "Traceback" not in broken.err

    repo.run("git-envlog", "fsck", "--repair", check=True)
    assert [one.id for one in opened(repo).log()] == [one.id for one in reversed(moments)]


def test_repair_restores_deleted_refs(repo: Repo, history: EnvHistory, tmp_path: Path) -> None:
    moments = three_snapshots(repo, history)
    history.name("first", moments[0])
    forget(repo, history)

    output = repo.run("git-envlog", "fsck", "--quick")
    assert output.status == 1
    assert "our packs still contain 3 snapshots" in output.out
    repo.run("git-envlog", "fsck", "--repair", check=True)

    assert [one.id for one in opened(repo).log()] == [one.id for one in reversed(moments)]
    assert opened(repo).resolve("first").id == moments[0].id
    for one in opened(repo).log():
        assert_intact(repo, one)


@pytest.mark.parametrize("content", ["1234567890" * 4 + "\n", None])
def test_repair_rejoins_a_restarted_timeline(repo: Repo, history: EnvHistory, content: str | None) -> None:
    moments = three_snapshots(repo, history)
    history.name("first", moments[0])
    history.drop(moments[1])
    newest = repo.git("rev-parse", history.log()[0].commit)
    if content is not None:
        (repo.path / f".git/refs/envhist/heads/{history.timeline}").write_text(content)
    else:
        # Only the pack with the newest commit is temporarily unreadable.
        index = place_of(repo, newest)[0].with_suffix(".idx")
        held = index.read_bytes()
        index.chmod(0o600)
        index.write_bytes(b"")
    anew = repo.run("git-envlog", "capture", "anew", check=True)
    assert "a new chain starts" in anew.err
    if content is None:
        index.write_bytes(held)
    for pack in packs_of(repo):
        os.utime(pack, (0, 0))

    history.gc("now")
    output = repo.run("git-envlog", "fsck", "--quick")
    assert output.status == 1
    assert "our packs still contain 2 older snapshots" in output.out
    assert repo.run("git-envlog", "purge", "kept").status == 3
    repo.run("git-envlog", "fsck", "--repair", check=True)

    line = opened(repo).log()
    assert [one.intent for one in line] == ["anew", "moment 2", "moment 0"]
    assert [one.id for one in line[1:]] == [moments[2].id, moments[0].id]
    assert opened(repo).resolve("first").id == moments[0].id
    for one in line[1:]:
        assert_intact(repo, one)
    assert repo.run("git-envlog", "fsck").status == 0
    repo.git("fsck", "--full", "--strict", "--no-dangling")


@pytest.mark.parametrize("clean", [True, False])
def test_repair_of_a_deleted_ref_keeps_dropped_snapshots_in_the_trash(
    repo: Repo, history: EnvHistory, clean: bool
) -> None:
    moments = three_snapshots(repo, history)
    history.drop(moments[2], moments[0])
    if clean:
        history.gc("now")
    line = [(one.id, one.commit) for one in opened(repo).log()]
    repo.git("update-ref", "-d", f"refs/envhist/heads/{history.timeline}")

    repo.run("git-envlog", "fsck", "--repair", check=True)

    assert [(one.id, one.commit) for one in opened(repo).log()] == line
    assert {one.snapshot.id for one in opened(repo).dropper.trash()} == {moments[0].id, moments[2].id}


def test_repair_does_not_restore_dropped_snapshots(repo: Repo, history: EnvHistory) -> None:
    moments = three_snapshots(repo, history)
    history.drop(*moments)
    assert repo.run("git-envlog", "fsck").status == 0
    assert opened(repo).log() == []
