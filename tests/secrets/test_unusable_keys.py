"""Missing, lost and wrong keys give clear errors and never garbage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.secrets.test_unsigned_snapshots import message_of, put_on_timeline, trusted
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, Result, make_repo
from tests.support.snapshot import read_back

SECRET = "API_KEY=hunter2-and-more\n"


def key_places(repo: Repo) -> tuple[Path, Path]:
    return repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"


def lose_keys(repo: Repo) -> None:
    for place in key_places(repo):
        shutil.rmtree(place)


def key_id(repo: Repo) -> str:
    return (key_places(repo)[0] / "current").read_text().strip()


def blob(repo: Repo, snapshot: str, path: str) -> bytes:
    return repo.run_git("cat-file", "blob", f"{snapshot}:{path}").stdout


def assert_refused(done: Result, *words: str) -> None:
    assert done.status == 128
    assert done.stdout == b""
    assert done.err.startswith("error: ")
    assert "\nhint: " in done.err
    assert "hunter2" not in done.err
    for word in words:
        assert word in done.err


@pytest.fixture
def sealed(repo: Repo) -> tuple[Repo, str]:
    repo.write(".env", SECRET)
    return repo, capture(repo, "with a secret")


def test_lost_key_is_named_and_no_content_is_printed(sealed: tuple[Repo, str]) -> None:
    repo, snapshot = sealed
    lost = key_id(repo)
    lose_keys(repo)
    assert_refused(repo.run("envlog", "show", "@", "--", ".env"), lost, "which is missing", "key import")
    repo.write(".env", "API_KEY=another\n")
    for words in (("-p",), ("-p", "--reveal"), (), ("--stat",)):
        done = repo.run("envdiff", *words, snapshot)
        assert done.status == 0, done.err
        assert ".env" in done.out
        assert b"hunter2" not in done.stdout
        assert blob(repo, snapshot, ".env")[-16:] not in done.stdout
    assert lost in repo.run("envdiff", "-p", snapshot).out


def test_captures_continue_with_a_new_key_after_a_loss(sealed: tuple[Repo, str]) -> None:
    repo, first = sealed
    lost = key_id(repo)
    # The record of the current key's id remains, but its file is lost.
    for place in key_places(repo):
        (place / lost).unlink()
    done = repo.run("envlog", "capture", "after", check=True)
    assert f"'{lost}' is lost" in done.err
    assert key_id(repo) != lost
    assert repo.run("envlog", "show", "@", "--", ".env", check=True).out == SECRET
    assert_refused(repo.run("envlog", "show", first, "--", ".env"), lost)
    assert repo.run("envdiff", "-p", first, "@").status == 0


def test_key_in_the_configuration_home_opens_files_without_the_key_directory(
    sealed: tuple[Repo, str],
) -> None:
    repo, _ = sealed
    shutil.rmtree(key_places(repo)[0])
    assert repo.run("envlog", "show", "@", "--", ".env", check=True).out == SECRET


def test_secrets_are_not_captured_without_a_place_for_keys(repo: Repo) -> None:
    prefix = as_ordinary_user()
    repo.write(".env", SECRET)
    repo.write("staged.env", SECRET)
    repo.git("add", "-f", "staged.env")
    (repo.path / "staged.env").unlink()
    staged = repo.git("rev-parse", ":staged.env")
    places = [repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"])]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o500)
    attached = repo.write("../talk", "words")
    done = repo.run("envlog", "capture", "x", "--attach", str(attached), prefix=prefix)
    for place in places:
        place.chmod(0o700)
    assert done.status == 0, done.err
    assert "'.env'" in done.err
    assert "attachments are not stored" in done.err
    snapshot = repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads")
    assert b".env" not in read_back(repo, snapshot).listing
    assert repo.git("show", f"{snapshot}:app.py") == "print('hello')"
    assert "no-key" in repo.run("envlog", "show").out
    everything = repo.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    for one in everything:
        if one != staged:
            data = repo.run_git("cat-file", "-p", one).stdout
            assert b"hunter2" not in data
            assert staged.encode() not in data


def test_wrong_key_under_the_right_name_is_refused(sealed: tuple[Repo, str], tmp_path: Path) -> None:
    repo, _ = sealed
    other = make_repo(tmp_path / "other")
    other.env["XDG_CONFIG_HOME"] = str(tmp_path / "other-config")
    capture(other)
    foreign = (key_places(other)[0] / key_id(other)).read_bytes()
    for place in key_places(repo):
        (place / key_id(repo)).write_bytes(foreign)
    assert_refused(repo.run("envlog", "show", "@", "--", ".env"), key_id(repo))


def test_same_secret_on_two_machines_with_one_key_is_one_object(
    sealed: tuple[Repo, str], tmp_path: Path
) -> None:
    repo, first = sealed
    exported = repo.run("envlog", "key", "export", check=True).out
    second_machine = make_repo(tmp_path / "second")
    second_machine.env["XDG_CONFIG_HOME"] = str(tmp_path / "second-config")
    second_machine.run("envlog", "key", "import", input=exported, check=True)
    third_machine = make_repo(tmp_path / "third")
    third_machine.env["XDG_CONFIG_HOME"] = str(tmp_path / "third-config")
    found = [blob(repo, first, ".env")]
    for machine in (second_machine, third_machine):
        machine.write(".env", SECRET)
        found.append(blob(machine, capture(machine), ".env"))
    assert found[0] == found[1]
    assert found[0] != found[2]
    tails = [text.partition(b"\n\n")[2] for text in found]
    assert tails[0][:16] != tails[2][:16]


def test_same_secret_at_two_paths_gives_different_objects(repo: Repo) -> None:
    repo.write("a/.env", SECRET)
    repo.write("b/.env", SECRET)
    snapshot = capture(repo)
    tails = [blob(repo, snapshot, path).partition(b"\n\n")[2] for path in ("a/.env", "b/.env")]
    assert tails[0] != tails[1]


def tree_with(repo: Repo, snapshot: str, entries: dict[str, str]) -> str:
    """Return the tree of a snapshot with blobs put at paths of its top by plain git."""
    env = {"GIT_INDEX_FILE": str(repo.path.parent / "by-hand")}
    repo.execute("git", "read-tree", snapshot, env=env)
    for path, oid in entries.items():
        repo.execute("git", "update-index", "--add", "--cacheinfo", f"100644,{oid},{path}", env=env)
    return repo.execute("git", "write-tree", env=env).out.strip()


def test_sealed_file_does_not_open_at_another_path(repo: Repo) -> None:
    repo.write(".env", SECRET)
    repo.write(".env.local", "OTHER=1\n")
    repo.write("plain.txt", "x")
    first = capture(repo)
    oid = {path: repo.git("rev-parse", f"{first}:{path}") for path in (".env", ".env.local")}
    swapped = {".env": oid[".env.local"], ".env.local": oid[".env"], "plain.txt": oid[".env"]}
    put_on_timeline(repo, message_of(repo, first), tree_with(repo, first, swapped))
    for path in (".env", ".env.local"):
        assert_refused(repo.run("envlog", "show", "@", "--", path), "another path", "do not trust")
    # If the manifest calls a file plain, its bytes are printed literally, here sealed.
    assert b"hunter2" not in repo.run("envlog", "show", "@", "--", "plain.txt").stdout
    done = repo.run("envdiff", "-p", "--reveal", first, "@", check=True)
    assert "another path" in done.out
    assert "hunter2" not in done.out
    assert not trusted(repo)


def test_exchanged_older_secret_makes_the_snapshot_unsigned(repo: Repo) -> None:
    repo.write(".env", "OLD=1\n")
    first = capture(repo)
    repo.write(".env", SECRET)
    second = capture(repo)
    old = repo.git("rev-parse", f"{first}:.env")
    put_on_timeline(repo, message_of(repo, second), tree_with(repo, second, {".env": old}))
    # The file opens, because it was sealed for this path, but the snapshot is unsigned.
    assert repo.run("envlog", "show", "@", "--", ".env").out == "OLD=1\n"
    assert not trusted(repo)


@pytest.mark.parametrize("at", [-1, -40, 120])
def test_flipped_bit_is_reported_and_no_content_is_printed(sealed: tuple[Repo, str], at: int) -> None:
    repo, snapshot = sealed
    data = bytearray(blob(repo, snapshot, ".env"))
    data[at] ^= 1
    oid = repo.git("hash-object", "-w", "--stdin", input=bytes(data))
    put_on_timeline(repo, message_of(repo, snapshot), tree_with(repo, snapshot, {".env": oid}))
    assert_refused(repo.run("envlog", "show", "@", "--", ".env"))


def test_sealed_attachment_and_staged_content_do_not_open_as_file(repo: Repo) -> None:
    repo.write(".env", SECRET)
    repo.git("add", "-f", ".env")
    repo.write(".env", "changed")
    snapshot = capture(repo)
    (staged,) = repo.git("ls-tree", "--name-only", f"{snapshot}:.envhist/staged/content").split()
    oid = repo.git("rev-parse", f"{snapshot}:.envhist/staged/content/{staged}")
    put_on_timeline(repo, message_of(repo, snapshot), tree_with(repo, snapshot, {".env": oid}))
    assert_refused(repo.run("envlog", "show", "@", "--", ".env"), "sealed as 'staged'")


def test_keys_are_never_captured(repo: Repo) -> None:
    repo.env["XDG_CONFIG_HOME"] = str(repo.path / "home/.config")
    repo.write(".env", SECRET)
    capture(repo, "a home in the working tree")
    first = capture(repo, "its key is there now")
    assert "git-envhist/keys" not in repo.git("ls-tree", "-rt", "--name-only", first)

    exported = repo.run("envlog", "key", "export", check=True).stdout
    repo.write("backup.txt", exported)
    repo.write("copy", (key_places(repo)[0] / key_id(repo)).read_bytes())
    second = capture(repo, "copies of it")
    for path in ("backup.txt", "copy"):
        assert blob(repo, second, path).startswith(b"envhist-sealed 1")


def test_files_of_encrypting_filters_are_sealed_even_if_untracked(repo: Repo) -> None:
    repo.git("config", "filter.git-crypt.clean", "cat")
    repo.write(".gitattributes", "vaults/** filter=git-crypt\n")
    repo.write("vaults/tracked", "one")
    repo.commit()
    repo.write("vaults/new", "two")
    first = capture(repo, "not added yet")
    repo.write(".git/index", "garbage")
    second = capture(repo, "a damaged index")
    for snapshot in (first, second):
        for path in ("vaults/tracked", "vaults/new"):
            assert blob(repo, snapshot, path).startswith(b"envhist-sealed 1")
