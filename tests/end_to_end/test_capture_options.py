"""Each option of `git envlog capture`, and each setting of its contents."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture, history, tip
from tests.support.oracle import git_fsck
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, make_repo
from tests.support.snapshot import read_back


def message(repo: Repo, snapshot: str) -> bytes:
    return repo.run_git("log", "-1", "--format=%B", snapshot).stdout


def shown(repo: Repo, *words: str) -> dict[str, object]:
    return json.loads(repo.run("envlog", "show", "--json", *words, check=True).out)


INTENTS = [
    b"plain",
    b"two\n\nparagraphs",
    b"-dash",
    b"a | pipe",
    b"  spaces  ",
    b"Env-Head: forged",
    b"\xff\xfe",
    b"x" * 100_000,
]


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: ascii(intent[:16]))
def test_an_intent_is_kept_word_for_word(repo: Repo, intent: bytes) -> None:
    snapshot = capture(repo, "-m", intent)
    assert (
        repo.run_git("cat-file", "commit", snapshot).stdout.split(b"\n\n", 1)[1].startswith(intent + b"\n\n")
    )
    assert repo.run("envlog", "--oneline").status == 0
    assert len(repo.run("envlog", "--oneline").out.splitlines()) == 1
    told = shown(repo, snapshot)
    assert told["intent_source"] == "given"


def test_snapshot_without_an_intent_names_the_code_commit(repo: Repo) -> None:
    told = shown(repo, capture(repo))
    head = repo.git("rev-parse", "HEAD")
    assert told["intent"] == "first commit"
    assert told["title"] == "capture: first commit"
    # Lists of git show only the first line, which must not look like the commit's title.
    assert repo.git("log", "-1", "--format=%s", str(told["id"])) == f"snapshot after {head[:7]}"
    assert told["intent_source"] == "commit"
    assert "· capture: first commit" in repo.run("envlog", check=True).out
    notes = repo.git("for-each-ref", "--format=%(subject)", "refs/notes")
    assert notes == "envhist: metadata"


def test_intent_may_be_given_as_a_word_or_with_m_and_not_twice(repo: Repo) -> None:
    assert message(repo, capture(repo, "as a word")).startswith(b"as a word\n")
    assert repo.run("envlog", "capture", "one", "-m", "two").status == 129
    assert len(history(repo)) == 1


def test_each_m_is_a_paragraph_of_the_intent(repo: Repo) -> None:
    assert shown(repo, capture(repo, "-m", "before", "-m", "why so"))["intent"] == "before\n\nwhy so"
    assert repo.run("envlog", "note", "-m", "one", "-m", "two").status == 0
    assert shown(repo, "@")["notes"][0]["text"] == "one\n\ntwo"


def test_name_option_names_the_snapshot(repo: Repo) -> None:
    snapshot = capture(repo, "--name", "before-refactor")
    assert shown(repo, "before-refactor")["id"] == snapshot
    assert shown(repo, snapshot)["names"] == ["before-refactor"]


@pytest.mark.parametrize("name", ["capture", "show", "verify", "now", "HEAD", "10:27", "-x", ""])
def test_name_with_another_meaning_is_refused_before_anything_is_stored(repo: Repo, name: str) -> None:
    done = repo.run("envlog", "capture", f"--name={name}")
    assert done.status in (3, 129), done.err
    assert tip(repo) is None


def test_if_changed_takes_no_snapshot_without_changes(repo: Repo) -> None:
    first = capture(repo)
    assert capture(repo, "--if-changed") == first
    os.utime(repo.path / "app.py", (1, 1))
    assert capture(repo, "--if-changed") == first, "touching a file does not change its content"
    repo.write("app.py", b"changed\n")
    assert capture(repo, "--if-changed") != first
    (repo.path / "app.py").chmod(0o600)
    capture(repo, "--if-changed")
    assert len(history(repo)) == 3, "a change of mode must be captured"


def test_strict_refuses_when_a_path_cannot_be_read(repo: Repo) -> None:
    repo.write("closed", b"x", mode=0)
    prefix = as_ordinary_user()
    done = repo.run("envlog", "capture", "--strict", prefix=prefix)
    assert done.status == 3
    assert "closed" in done.err
    assert tip(repo) is None
    repo.path.joinpath("closed").chmod(0o600)
    assert repo.run("envlog", "capture", "--strict", prefix=prefix).status == 0


def test_unreadable_paths_are_listed_and_the_rest_is_captured(repo: Repo) -> None:
    repo.write("closed", b"x", mode=0)
    repo.write("dir/inside", b"y")
    repo.write("beside", b"z")
    (repo.path / "dir").chmod(0)
    try:
        done = repo.run("envlog", "capture", "--porcelain", prefix=as_ordinary_user())
    finally:
        (repo.path / "dir").chmod(0o755)
    assert done.status == 0
    assert "'closed'" in done.err
    assert "'dir'" in done.err
    told = shown(repo)
    assert told["complete"] is False
    assert {(one["path"], one["why"]) for one in told["missing"]} == {
        ("closed", "unreadable"),
        ("dir", "unreadable"),
    }  # type: ignore[attr-defined]
    assert repo.git("show", f"{done.out.strip()}:beside") == "z"
    assert b"dir" in read_back(repo, done.out.strip()).listing


def test_meta_and_external_id_are_kept(repo: Repo) -> None:
    snapshot = capture(repo, "--meta", "model=large", "--meta", "note=a=b\nc%", "--external-id", "turn 17%")
    told = shown(repo, snapshot)
    assert told["meta"] == {"model": "large", "note": "a=b\nc%"}
    assert told["external_id"] == "turn 17%"
    assert repo.run("envlog", "capture", "--meta", "novalue").status == 129


def test_an_attachment_is_kept_sealed(repo: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "transcript.txt"
    outside.write_bytes(b"the conversation, word for word")
    snapshot = capture(repo, "--attach", str(outside))
    assert len(shown(repo, snapshot)["attachments"]) == 1  # type: ignore[arg-type]
    everything = repo.run_git("cat-file", "--batch-all-objects", "--batch", "--unordered").stdout
    assert b"the conversation" not in everything
    assert repo.run("envlog", "capture", "--attach", str(tmp_path / "none")).status != 0


def test_dry_run_prints_and_stores_nothing(repo: Repo) -> None:
    repo.write("big/file", b"x" * 50_000)
    before = repo.git("count-objects", "-v")
    done = repo.run("envlog", "capture", "-n", check=True)
    assert "big/" in done.out
    assert tip(repo) is None
    assert repo.git("count-objects", "-v") == before


def test_porcelain_prints_the_full_id_only(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--porcelain", "x", check=True)
    assert done.out == f"{tip(repo)}\n"


def test_first_capture_without_directories_names_none(tmp_path: Path) -> None:
    flat = make_repo(tmp_path / "flat", commit=False)
    flat.write("file", b"1")
    (flat.path / "empty").mkdir()
    printed = flat.run("envlog", "capture", check=True).out
    assert printed.splitlines()[2:] == [" this first snapshot contains the whole environment"]


def test_capture_prints_timeline_id_intent_and_counts(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "the reason", check=True)
    newest = str(tip(repo))
    first = done.out.splitlines()[0]
    assert first.startswith("[")
    assert first.endswith(f" {newest[:7]}] the reason")
    assert "1 file" in done.out


def test_json_describes_the_snapshot(repo: Repo) -> None:
    output = json.loads(repo.run("envlog", "capture", "x", "--json", check=True).out)
    assert output["schema"] == 1
    assert str(tip(repo)) in json.dumps(output)


def test_capture_of_home_requires_force(repo: Repo) -> None:
    done = repo.run("envlog", "capture", env={"HOME": str(repo.path)})
    assert done.status == 3
    assert "--force" in done.err
    assert tip(repo) is None
    assert repo.run("envlog", "capture", "--force", env={"HOME": str(repo.path)}).status == 0


def test_time_of_a_snapshot_is_the_committer_date_if_set(repo: Repo) -> None:
    done = repo.run(
        "envlog", "capture", "--porcelain", env={"GIT_COMMITTER_DATE": "2026-11-18T10:02:00+05:30"}
    )
    assert (
        repo.git("log", "-1", "--format=%aI %cI", done.out.strip())
        == "2026-11-18T10:02:00+05:30 2026-11-18T10:02:00+05:30"
    )


def test_envhistignore_and_exclude_skip_paths(repo: Repo) -> None:
    repo.write(".envhistignore", b"*.cache\n/only-top\nbuild/\n!keep.cache\n")
    repo.git("config", "--add", "envhist.exclude", "*.tmp")
    repo.git("config", "--add", "envhist.exclude", "/downloads/")
    repo.write(".gitignore", b"ignored-by-git\n")
    inside = ("keep.cache", "sub/only-top", "ignored-by-git", "builder")
    outside = ("x.cache", "only-top", "build/a", "sub/build/b", "y.tmp", "downloads/z")
    for path in inside + outside:
        repo.write(path, b"1")
    taken = capture(repo)
    found = read_back(repo, taken).listing
    assert {os.fsencode(path) for path in inside} <= set(found)
    assert not {os.fsencode(path) for path in outside} & set(found)
    assert b".envhistignore" in found
    # The snapshot lists skipped paths, so that they are not taken for removed ones.
    output = repo.git("show", f"{taken}:.envhist/rules").splitlines()
    assert output[:4] == ["ignore *.cache", "ignore /only-top", "ignore build/", "ignore !keep.cache"]
    assert output[4:] == ["exclude *.tmp", "exclude /downloads/"]


def test_a_fingerprinted_file_is_recorded_without_its_bytes(repo: Repo) -> None:
    repo.git("config", "envhist.fingerprint", "*.model")
    repo.write("big.model", b"weights that are not to be stored")
    first = capture(repo)
    assert read_back(repo, first).stored == {b"big.model": "fingerprint"}
    everything = repo.run_git("cat-file", "--batch-all-objects", "--batch", "--unordered").stdout
    assert b"weights that are not" not in everything
    repo.write("big.model", b"other weights, same place, same s")
    assert capture(repo, "--if-changed") != first


def test_secret_files_are_sealed_before_they_are_stored(repo: Repo) -> None:
    repo.git("config", "envhist.secret", "my.secret")
    repo.write(".env.local", b"PASSWORD=correct-horse-1\n")
    repo.write("my.secret", b"correct-horse-2\n")
    repo.write("deploy/id_rsa", b"-----BEGIN PRIVATE KEY-----\ncorrect-horse-3\n")
    repo.write(".env.example", b"PASSWORD=put yours here\n")
    snapshot = capture(repo)
    found = read_back(repo, snapshot)
    assert {path for path, how in found.stored.items() if how == "sealed"} == {
        b".env.local",
        b"my.secret",
        b"deploy/id_rsa",
    }
    everything = repo.run_git("cat-file", "--batch-all-objects", "--batch", "--unordered").stdout
    assert b"correct-horse" not in everything
    assert (
        repo.run("envlog", "show", snapshot, "--", ".env.local", check=True).out
        == "PASSWORD=correct-horse-1\n"
    )


def test_additional_root_is_captured_below_its_name(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "site.conf").write_bytes(b"listen 80\n")
    repo.git("config", "envhist.root.nginx", str(tmp_path / "etc"))
    first = capture(repo)
    assert set(read_back(repo, first).roots["nginx"]) == {b"", b"site.conf"}
    assert repo.git("show", f"{first}:.envhist/roots/nginx/site.conf") == "listen 80"
    for moment in (first, "now"):
        assert repo.run("envlog", "show", moment, "--", "nginx://site.conf", check=True).out == "listen 80\n"
    for other in ("nginx://../site.conf", "nginx://", "nginx://other", "none://site.conf"):
        assert repo.run("envlog", "show", "--", other).status == 4
    (tmp_path / "etc" / "site.conf").write_bytes(b"listen 81\n")
    assert capture(repo, "--if-changed") != first


def test_a_nested_repository_is_captured_with_its_git_directory(repo: Repo) -> None:
    repo.git("init", "-q", "vendor/lib")
    repo.write("vendor/lib/code.py", b"1")
    snapshot = capture(repo)
    assert_holds(repo, snapshot)
    assert b"vendor/lib/.git/HEAD" in read_back(repo, snapshot).listing
    head = repo.run("envlog", "show", snapshot, "--", "vendor/lib/.git/HEAD", check=True).out
    assert head == "ref: refs/heads/main\n"
    assert "commit" not in repo.git("ls-tree", "-r", snapshot).split()
    assert git_fsck(repo.path) == ""


def test_files_over_the_budget_are_skipped_with_a_warning(repo: Repo) -> None:
    repo.git("config", "envhist.budget", "1m")
    repo.write("huge", os.urandom(3 << 20))
    repo.write("small", b"x")
    done = repo.run("envlog", "capture", "--porcelain", check=True)
    assert "'huge'" in done.err
    assert "budget" in done.err
    assert repo.git("show", f"{done.out.strip()}:small") == "x"
    assert [one["why"] for one in shown(repo)["missing"]] == ["budget"]  # type: ignore[attr-defined]
    repo.git("config", "envhist.budget", "1g")
    assert_holds(repo, capture(repo))


def test_timeline_can_be_chosen(repo: Repo) -> None:
    repo.git("config", "envhist.timeline", "laptop/mine")
    snapshot = capture(repo)
    assert repo.git("rev-parse", "refs/envhist/heads/laptop/mine") == snapshot


def test_small_change_of_a_big_file_stores_few_new_chunks(repo: Repo) -> None:
    content = bytearray(os.urandom(10 << 20))
    repo.write("big", bytes(content))
    snapshot = capture(repo)
    assert_holds(repo, snapshot)
    assert read_back(repo, snapshot).stored[b"big"] == "pieces"
    before = _stored_bytes(repo)
    content[5_000_000:5_000_003] = b"new"
    repo.write("big", bytes(content))
    assert_holds(repo, capture(repo))
    assert _stored_bytes(repo) - before < 1 << 20


def _stored_bytes(repo: Repo) -> int:
    return sum(path.stat().st_size for path in (repo.path / ".git/objects/pack").glob("*.pack"))


def test_staged_content_that_exists_nowhere_else_is_stored(repo: Repo) -> None:
    repo.write("app.py", b"staged and then overwritten\n")
    repo.git("add", "app.py")
    repo.write("app.py", b"in the working tree\n")
    snapshot = capture(repo)
    repo.git("reset", "-q", "--hard")
    repo.git("gc", "-q", "--prune=now")
    staged = repo.git("ls-tree", "-r", "--name-only", snapshot, ".envhist/staged").splitlines()
    contents = [repo.git("show", f"{snapshot}:{path}", check=False) for path in staged]
    assert any("staged and then overwritten" in content for content in contents)


def test_git_changed_lists_gits_changes_and_env_changed_the_snapshots(repo: Repo) -> None:
    repo.write(".gitignore", b".env.local\n")
    repo.commit("ignore")
    capture(repo)
    repo.write("app.py", b"changed\n")
    repo.write(".env.local", b"A=1\n")
    capture(repo)
    told = shown(repo)
    assert told["git_changed"] == [{"status": "M", "path": "app.py"}]
    paths = told["env_changed"]["paths"]  # type: ignore[index]
    assert {(one["status"], one["path"]) for one in paths} == {("M", "app.py"), ("A", ".env.local")}
