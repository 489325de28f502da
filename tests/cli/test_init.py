"""`git envlog init`: the history of a directory without git, after moves, copies and replacements."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from tests.end_to_end.captures import assert_holds, capture
from tests.support.oracle import git_fsck, listing
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, Result, make_repo
from tests.support.trees import File, Link, build


@pytest.fixture
def plain(tmp_path: Path) -> Repo:
    """Return a directory without git, with a few files."""
    place = tmp_path / "notes"
    build({b"a": File(b"1\n"), b"in/b": File(b"2\n", 0o755), b"in/link": Link(b"b")}, place)
    return Repo(place, dict(os.environ))


@pytest.fixture
def begun(plain: Repo) -> Repo:
    """Return the directory with a history of one snapshot."""
    plain.run("envlog", "init", check=True)
    capture(plain, "first")
    return plain


def moved(repo: Repo, name: str) -> Repo:
    place = repo.path.with_name(name)
    repo.path.rename(place)
    return Repo(place, repo.env)


def at(repo: Repo, place: Path) -> Repo:
    return Repo(place, repo.env)


def intents(repo: Repo, cwd: str = ".") -> list[str]:
    return repo.run("envlog", "--format=%s", cwd=cwd, check=True).out.splitlines()


def told(repo: Repo, *words: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads(repo.run("envlog", "init", *words, "--json", check=True).out)
    return answer


def store(repo: Repo) -> Repo:
    """Return the repository that contains the history."""
    place = Path(str(told(repo)["repository"]))
    return Repo(place, {**repo.env, "GIT_DIR": str(place)})


def records(repo: Repo) -> list[str]:
    return sorted(os.listdir(Path(repo.env["XDG_DATA_HOME"]) / "git-envhist" / "homes"))


def error(done: Result, status: int) -> str:
    assert (done.status, done.out) == (status, ""), done
    assert done.err.startswith("error: ")
    assert "\nhint: " in done.err
    return done.err


def test_history_without_git_works_as_in_a_repository(plain: Repo) -> None:
    seen = listing(plain.path, top=True)
    done = plain.run("envlog", "init", check=True)
    assert done.out.splitlines()[0].startswith(f"the history of '{plain.path}' is stored in '")
    assert done.out.splitlines()[1] == "take the first snapshot: git envlog capture"
    first = capture(plain, "first", "--name", "start")
    assert listing(plain.path, top=True) == seen, "init must not write into the directory"
    plain.write("in/b", b"3\n")
    plain.write(".env", b"TOKEN=abc\n")
    second = capture(plain, "second")
    for commit, wanted in ((first, seen), (second, listing(plain.path, top=True))):
        assert_holds(store(plain), commit, wanted)
    for cwd in (".", "in"):
        assert intents(plain, cwd) == ["second", "first"]
        told_now = plain.run("envdiff", "--name-status", "start", "@", cwd=cwd, check=True).out
        assert told_now == "A\t.env\nM\tin/b\n"
    assert plain.run("envlog", "show", "start", "--", "b", cwd="in", check=True).out == "2\n"
    assert plain.run("envlog", "show", "@", "--", ".env", check=True).out == "TOKEN=abc\n"
    plain.run("envlog", "note", "-m", "remarkable", cwd="in", check=True)
    assert "remarkable" in plain.run("envlog", "show", check=True).out
    assert "seals new files" in plain.run("envlog", "key", check=True).out
    plain.write("now", b"1\n")
    assert plain.run("envdiff", "--name-only", check=True).out == "now\n"
    assert git_fsck(store(plain).path) == ""


def test_git_finds_no_repository_there_and_no_code_commit_is_recorded(begun: Repo) -> None:
    card = json.loads(begun.run("envlog", "show", "--json", check=True).out)
    assert (card["git_changed"], card["head"], card["branch"]) == ([], None, None)
    assert begun.run_git("rev-parse", check=False).status == 128
    assert begun.run("envlog", "show", "HEAD").status == 4


def test_envhistignore_excludes_paths(plain: Repo) -> None:
    plain.run("envlog", "init", check=True)
    plain.write(".envhistignore", b"/in/\n")
    snapshot = capture(plain)
    assert store(plain).git("ls-tree", "--name-only", snapshot).split() == [".envhist", ".envhistignore", "a"]


def test_history_is_private_to_its_owner(begun: Repo) -> None:
    os.umask(0)
    try:
        begun.write("more", b"1\n")
        capture(begun, "with an open umask")
    finally:
        os.umask(0o022)
    top = Path(begun.env["XDG_DATA_HOME"]) / "git-envhist"
    open_to_others = subprocess.run(
        ["find", top, "-type", "d", "-perm", "/077"], capture_output=True, text=True
    ).stdout
    assert open_to_others == ""
    assert top.stat().st_mode & 0o777 == 0o700


def test_second_init_changes_nothing(begun: Repo) -> None:
    before = told(begun)
    done = begun.run("envlog", "init", check=True)
    assert done.out.splitlines()[1] == "it contains 1 snapshot: git envlog"
    assert told(begun) == before
    assert len(records(begun)) == 1


def test_history_is_found_after_a_move(begun: Repo) -> None:
    elsewhere = moved(begun, "new\nname")
    assert intents(elsewhere, "in") == ["first"]
    capture(elsewhere, "second")
    deeper = elsewhere.path.parent / "deep" / "er"
    deeper.parent.mkdir()
    elsewhere.path.rename(deeper)
    assert intents(at(begun, deeper)) == ["second", "first"]
    assert at(begun, deeper).run("envlog", "init", check=True).out.startswith(f"the history of '{deeper}' is")
    # A new directory at the old path has no history.
    begun.path.mkdir()
    assert "not a git repository" in error(begun.run("envlog"), 128)
    assert len(records(begun)) == 1


def test_history_is_found_through_a_link(begun: Repo) -> None:
    link = begun.path.with_name("link")
    link.symlink_to(begun.path)
    through = Repo(link, {**begun.env, "PWD": str(link)})
    capture(through, "second")
    assert intents(begun) == ["second", "first"]


def test_new_directory_at_the_same_path_needs_a_decision(begun: Repo) -> None:
    known = told(begun)
    shutil.rmtree(begun.path)
    begun.path.mkdir()
    begun.write("other", b"1\n")
    if begun.run("envlog").status == 0:
        pytest.skip("this file system does not distinguish directories with the same inode number")
    (name,) = records(begun)
    for words in (("envlog",), ("envlog", "capture"), ("envdiff",)):
        printed = error(begun.run(*words), 128)
        assert f"'{begun.path}' is not the directory that has a history, but another one" in printed
        assert f"git envlog init --adopt={name}" in printed
        assert "git envlog init --new" in printed
    assert name in error(begun.run("envlog", "init"), 3)
    assert told(begun, f"--adopt={name}") == known
    capture(begun, "made anew")
    assert intents(begun) == ["made anew", "first"]
    assert (
        begun.run("envdiff", "--name-status", "@~1", "@", check=True).out
        == "D\ta\nD\tin/b\nD\tin/link\nA\tother\n"
    )


def test_new_history_keeps_the_old_one(begun: Repo) -> None:
    before = store(begun)
    assert told(begun, "--new")["snapshots"] == 0
    capture(begun, "anew")
    assert intents(begun) == ["anew"]
    words = ["git", f"--git-dir={before.path}", f"--work-tree={begun.path}", "envlog", "--format=%s"]
    assert begun.execute(*words).out == "first\n"
    begun.run("envlog", "init", f"--adopt={before.path}", check=True)
    assert intents(begun) == ["first"]


def test_copy_has_no_history_before_adopt(begun: Repo) -> None:
    copy = at(begun, begun.path.with_name("copy"))
    begun.execute("cp", "-a", str(begun.path), str(copy.path))
    assert "not a git repository" in error(copy.run("envlog"), 128)
    assert "uses this history" in error(copy.run("envlog", "init", "--adopt", str(begun.path)), 3)
    shutil.rmtree(begun.path)
    copy.run("envlog", "init", "--adopt", str(begun.path), check=True)
    assert intents(copy) == ["first"]
    assert "no history matches 'nonsense'" in error(copy.run("envlog", "init", "--adopt=nonsense"), 128)


def test_move_to_another_file_system_names_adopt(plain: Repo) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == plain.path.stat().st_dev:
        pytest.skip("there is no second file system here that can be written")
    there = at(plain, shared / f"envhist-test-{os.getpid()}" / "notes")
    there.path.parent.mkdir()
    try:
        plain.run("envlog", "init", check=True)
        capture(plain, "here")
        plain.execute("mv", str(plain.path), str(there.path))
        done = there.run("envlog", "init", check=True)
        (name,) = [one for one in records(plain) if f"--adopt={one}" in done.err]
        there.run("envlog", "init", f"--adopt={name}", check=True)
        assert intents(there) == ["here"]
        deeper = at(plain, there.path.with_name("renamed"))
        there.path.rename(deeper.path)
        assert intents(deeper) == ["here"]
    finally:
        shutil.rmtree(there.path.parent)


def test_nearest_history_is_used(begun: Repo) -> None:
    inner = at(begun, begun.path / "in")
    assert "has a history too" in begun.run("envlog", "init", "in", check=True).err
    capture(inner, "of the inner one")
    (inner.path / "below").mkdir()
    assert intents(inner, "below") == ["of the inner one"]
    assert intents(begun) == ["first"]
    snapshot = capture(begun, "of the outer one")
    assert_holds(store(begun), snapshot, listing(begun.path, top=True))


def test_git_repository_inside_is_nearer(begun: Repo) -> None:
    inside = make_repo(begun.path / "code")
    assert inside.run("envlog", "--format=%s", check=True).out == ""
    capture(inside, "code")
    assert inside.run("envlog", "--format=%s", check=True).out == "code\n"
    assert intents(begun) == ["first"]
    assert_holds(
        store(begun), capture(begun, "with the code in it"), listing(begun.path, top=True, without=())
    )


def test_init_inside_a_git_repository_changes_nothing(repo: Repo) -> None:
    (repo.path / "sub").mkdir()
    for words in ((), ("sub",)):
        done = repo.run("envlog", "init", *words, check=True)
        assert (
            done.out == f"nothing to set up: '{repo.path}' is a git repository; its history is stored there\n"
        )
    assert told(repo)["plain"] is False
    assert not (Path(repo.env["XDG_DATA_HOME"]) / "git-envhist").exists()


def test_directory_that_became_a_repository_names_its_old_history(begun: Repo) -> None:
    before = store(begun).path
    begun.git("init", "-q")
    listed = begun.run("envlog", check=True)
    assert f"'{begun.path}' is a git repository now and has its history there" in listed.err
    way = listed.err.splitlines()[0].rpartition("': ")[2]
    assert begun.execute("sh", "-c", f"{way} --format=%s").out == "first\n"
    assert str(before) in begun.run("envlog", "capture", "-m", "in git", check=True).err
    assert intents(begun) == ["in git"]
    assert begun.run("envlog", check=True).err == "", "the warning must end with the first snapshot in git"
    assert begun.run("envlog", "init", check=True).out.startswith("nothing to set up: ")
    shutil.rmtree(begun.path / ".git")
    assert intents(begun) == ["first"]


def test_history_is_nearer_than_a_repository_around_it(begun: Repo, tmp_path: Path) -> None:
    begun.git("init", "-q", str(tmp_path))
    assert intents(begun, "in") == ["first"]
    assert told(begun)["plain"] is True


@pytest.mark.parametrize("place", ["home", "/"])
def test_home_directory_and_root_need_force(plain: Repo, place: str) -> None:
    home = str(plain.path) if place == "home" else plain.env["HOME"]
    env = {**plain.env, "HOME": home}
    target = home if place == "home" else "/"
    done = plain.run("envlog", "init", target, env=env)
    said = error(done, 3)
    assert ("your home directory" if place == "home" else "the whole machine") in said
    assert "--force" in said
    if place == "home":
        plain.run("envlog", "init", "--force", target, env=env, check=True)
        plain.run("envlog", "capture", "-m", "whoever begins it was asked", env=env, check=True)


def test_no_history_of_another_directory_is_part_of_a_home(begun: Repo) -> None:
    home = at(begun, Path(begun.env["HOME"]))
    (home.path / "project").mkdir()
    storage = home.path / "disk" / "project.git"
    project = EnvHistory.init(str(home.path / "project"), storage=str(storage), workers="here")
    project.capture("with a key of its own")
    key = next(path.read_bytes() for path in (storage / "envhist" / "keys").iterdir() if path.name != "lock")
    home.write("disk/beside", b"1\n")
    home.run("envlog", "init", "--force", check=True)
    snapshot = capture(home)
    kept = store(home)
    held = kept.git("ls-tree", "-r", "-t", "--name-only", snapshot).splitlines()
    assert {"gitconfig", "disk", "disk/beside"} <= set(held)
    assert not [path for path in held if "histories" in path or "homes" in path or "project.git" in path]
    assert key not in kept.run_git("cat-file", "--batch", "--batch-all-objects").stdout


def test_default_data_directory_is_used(plain: Repo) -> None:
    for value in ("", "relative/is/nothing"):
        env = {**plain.env, "XDG_DATA_HOME": value}
        plain.run("envlog", "init", env=env, check=True)
        plain.run("envlog", "capture", env=env, check=True)
    made = Path(plain.env["HOME"]) / ".local/share/git-envhist/histories"
    assert len(list(made.iterdir())) == 1
    assert not (plain.path / "relative").exists()


def test_unwritable_data_directory_is_an_error(plain: Repo) -> None:
    closed = Path(plain.env["HOME"]) / "closed"
    closed.mkdir(mode=0o555)
    env = {**plain.env, "XDG_DATA_HOME": str(closed)}
    done = plain.run("envlog", "init", prefix=as_ordinary_user(), env=env)
    assert f"cannot write below '{closed}" in error(done, 128)
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize(("word", "says"), [("nowhere", "no such directory"), ("a", "no such directory")])
def test_init_of_a_file_is_an_error(plain: Repo, word: str, says: str) -> None:
    assert says in error(plain.run("envlog", "init", word), 128)
    assert plain.run("envlog", "init", "--new", "--adopt=x").status == 129
    assert not (Path(plain.env["XDG_DATA_HOME"]) / "git-envhist" / "histories").exists()


def test_missing_repository_of_a_history_is_an_error(begun: Repo) -> None:
    place = store(begun).path
    place.rename(place.with_name("away"))
    printed = error(begun.run("envlog"), 128)
    assert f"the history of '{begun.path}' is missing: '{place}'" in printed
    place.with_name("away").rename(place)
    assert intents(begun) == ["first"]


def test_concurrent_inits_create_one_history(plain: Repo) -> None:
    words = ["git-envlog", "init"]
    running = [
        subprocess.Popen(words, cwd=plain.path, env=plain.env, stdout=subprocess.PIPE) for _ in range(4)
    ]
    said = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(said) == len(records(plain)) == 1


def test_damaged_record_of_another_history_is_ignored(begun: Repo) -> None:
    homes = Path(begun.env["XDG_DATA_HOME"]) / "git-envhist" / "homes"
    for number, content in enumerate([b"", b"\xff" * 9, b"envhist-home 1\npath %zz\n", b"envhist-home 2\n"]):
        (homes / f"broken-{number}").write_bytes(content)
    assert intents(begun) == ["first"]
    assert len(begun.run("envlog", "init", check=True).out.splitlines()) == 2


def test_history_ignores_templates_hooks_and_formats_of_the_user(plain: Repo, tmp_path: Path) -> None:
    template = tmp_path / "template"
    (template / "hooks").mkdir(parents=True)
    (template / "hooks" / "reference-transaction").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    (template / "hooks" / "reference-transaction").chmod(0o755)
    for key, value in {
        "init.templateDir": str(template),
        "init.defaultRefFormat": "reftable",
        "init.defaultObjectFormat": "sha256",
        "core.hooksPath": str(template / "hooks"),
        "core.sharedRepository": "world",
        "safe.bareRepository": "explicit",
    }.items():
        plain.git("config", "--global", key, value)
    plain.run("envlog", "init", check=True)
    assert len(capture(plain)) == 40
    assert not (tmp_path / "ran").exists()
    assert not (store(plain).path / "hooks").exists()


def test_api_creates_a_history_in_a_given_place(plain: Repo, tmp_path: Path) -> None:
    storage = tmp_path / "disk" / "history.git"
    history = EnvHistory.init(str(plain.path), storage=str(storage), workers="here")
    taken = history.capture("by a program").snapshot
    assert taken is not None
    assert history.repository.git_dir == str(storage)
    assert EnvHistory.open(str(plain.path / "in"), workers="here").log()[0].id == taken.id
    assert intents(plain) == ["by a program"]
    assert EnvHistory.init(str(plain.path), workers="here").repository.git_dir == str(storage)


COPY = """\
set -e
mount --make-rprivate /
truncate -s 4M one.img
mkfs.ext4 -q -O ^has_journal one.img
mkdir one two
mount -o loop one.img one
mkdir one/work
umount one
cp one.img two.img
mount -o loop one.img one
cd one/work
git-envlog init
git-envlog capture -m 'of the original'
cd ../..
mount -o loop two.img two
cd two/work
git-envlog 2>&1 && exit 9
git-envlog init --new
git-envlog capture -m 'of the copy'
git-envlog --format=%s
cd ../../one/work
git-envlog --format=%s
"""


def test_file_system_copy_is_distinguished_from_the_original(plain: Repo) -> None:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("unshare") is None:
        pytest.skip("only root can mount an image of a file system")
    done = plain.execute("unshare", "--mount", "sh", "-c", COPY, check=False)
    if "mount:" in done.err or "unshare" in done.err:
        pytest.skip(f"cannot mount here: {done.err}")
    assert done.status == 0, done.err
    copy = f"error: '{plain.path}/two/work' is a copy of '{plain.path}/one/work', and there is one history for both"
    assert copy in done.out
    assert done.out.splitlines()[-2:] == ["of the copy", "of the original"]


@pytest.mark.parametrize("content", [b"", b"\xff\0junk"])
def test_damaged_record_of_a_directory_is_named_and_written_again(
    begun: Repo, hermetic: Path, content: bytes
) -> None:
    (record,) = (hermetic / "data/git-envhist/homes").iterdir()
    record.write_bytes(content)
    refused = begun.run("envlog")
    assert refused.status == 128
    command = f"git envlog init --adopt={record.name}"
    assert command in refused.err
    begun.execute("sh", "-c", command)
    assert begun.run("envlog", "--format=%s", check=True).out == "first\n"
    begun.write("a", b"2")
    assert begun.run("envlog", "capture", "two", check=True).status == 0
