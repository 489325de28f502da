"""`-S` and `-G` answer as `git log` does on the same data as commits; sealed and big files are opened."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.history.search import count_text
from tests.support.repository import Repo

FILES = ("a.txt", "b/c.bin", ".env", "d.txt")
WORDS = (b"needle", b"Needle", b"hay=", b"x.y", b"\xff\xfe", b"\0", b"\r", b"", b"ne\nedle", b"[z]")


@pytest.fixture
def same(repo: Repo) -> Repo:
    """Return a repository with a row of states, each a snapshot and a commit with the same number."""
    chosen = random.Random(3)
    repo.write(".gitattributes", "* -text\n")
    for number in range(14):
        for name in FILES:
            if chosen.random() < 0.5:
                lines = [b"L%d=" % at + chosen.choice(WORDS) for at in range(chosen.randrange(5))]
                repo.write(name, b"\n".join(lines) + b"\n" * chosen.randrange(2))
        gone = repo.path / chosen.choice(FILES)
        if chosen.random() < 0.2 and gone.exists():
            gone.unlink()
        repo.git("add", "-A", "-f")
        repo.git("commit", "-q", "--allow-empty", "-m", f"n{number}")
        repo.run("envlog", "capture", "-m", f"n{number}", check=True)
    return repo


def ours(repo: Repo, *words: str | bytes) -> list[str]:
    out = repo.run("envlog", "--no-fold", "--format=%s", *words, check=True).out
    return [word for word in out.split() if re.fullmatch("n[0-9]+", word)]


def gits(repo: Repo, *words: str | bytes) -> list[str]:
    # A snapshot has the whole environment, the first commit of the fixture only a part of it.
    out = repo.git("log", "--format=%s", *words, "--", *FILES)
    return [word for word in out.split() if re.fullmatch("n[0-9]+", word)]


@pytest.mark.parametrize(
    "words",
    [
        ("-Sneedle",), ("-Sneedle", "-i"), (b"-S\xff\xfe",), ("-Shay=\nL",), ("-SL1=",), ("-Sedle",), ("-Sx.y",),
        ("-Gneedle",), ("-Gneedle", "-i"), ("-G[N]EED|\\.[[:upper:]]", "-i"),
        ("-Gx.y",), ("-G^L[0-9]=$",), ("-Gn?edle|hay",), ("-G[[]z]",), ("-GL1",), ("-G^$",),
    ],
)  # fmt: skip
def test_search_answers_as_git_does(same: Repo, words: tuple[str | bytes, ...]) -> None:
    assert ours(same, *words, "--reveal") == gits(same, *words)
    plain = [name for name in FILES if name != ".env"]
    assert ours(same, *words, "--", *plain) == ours(same, *words, "--reveal", "--", *plain)
    assert ours(same, *words, "--reveal", "--", ".env") == [
        one
        for one in gits(same, *words)
        if one in same.git("log", "--format=%s", *words, "--", ".env").split()
    ]
    assert ours(same, *words, "--", ".env") == []


def test_sealed_files_are_searched_only_for_the_owner_of_the_key(same: Repo) -> None:
    assert ours(same, "-SL1=", "--reveal", "--", ".env")
    state = same.path / ".git/envhist/keys"
    homes = (
        Path(same.env["XDG_CONFIG_HOME"])
        if "XDG_CONFIG_HOME" in same.env
        else Path(same.env["HOME"]) / ".config"
    )
    for place in (state, homes / "git-envhist/keys"):
        if place.exists():
            place.rename(f"{place}.gone")
    done = same.run("envlog", "-SL1=", "--reveal", "--oneline", "--", ".env")
    assert done.out == ""
    assert "some sealed files were not searched: their key is missing here" in done.err


def test_file_in_chunks_is_searched(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    noise = random.Random(1).randbytes(3 << 20)
    repo.write("big", noise + b"needle" + noise)
    repo.run("envlog", "capture", "-m", "n1", check=True)
    repo.write("big", noise + b"needles" + noise)
    repo.run("envlog", "capture", "-m", "n2", check=True)
    repo.write("big", noise)
    repo.run("envlog", "capture", "-m", "n3", check=True)
    assert ours(repo, "-Sneedle") == ["n3", "n1"]
    assert ours(repo, "-Sneedle", "--", "a*") == []


def test_copy_of_a_file_in_chunks_is_found_if_no_chunk_is_new(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    noise = random.Random(1).randbytes(1 << 20)
    contents = {"v1.db": noise, "v2.db": noise + b"needle", "cur.db": noise}
    for name, content in contents.items():
        repo.write(name, content)
    repo.run("envlog", "capture", "-m", "n1", check=True)
    repo.write("cur.db", contents["v2.db"])
    repo.run("envlog", "capture", "-m", "n2", check=True)
    assert ours(repo, "-Sneedle", "--", "cur.db") == ["n2"]


def test_another_storage_is_no_change_of_the_text(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.write("log", b"needle\n")
    repo.write("conf", b"needle\n")
    repo.run("envlog", "capture", "-m", "n1", check=True)
    repo.write("log", b"needle\n" + b"0" * (1 << 20))
    repo.run("envlog", "capture", "-m", "n2", check=True)
    repo.git("config", "--add", "envhist.secret", "conf")
    repo.write("conf", b"needle\n\n")
    repo.run("envlog", "capture", "-m", "n3", check=True)
    for words in (("-Sneedle",), ("-Sneedle", "--reveal"), ("-G^needle", "--reveal")):
        assert ours(repo, *words, "--", "log", "conf") == ["n1"], words


def test_sealed_side_of_a_file_is_not_opened_without_reveal(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.write(".env", b"A=needle\n")
    repo.run("envlog", "capture", "-m", "n1", check=True)
    repo.git("config", "--add", "envhist.secret", "!.env")
    repo.write(".env", b"0" * (1 << 20))
    repo.run("envlog", "capture", "-m", "n2", check=True)
    assert ours(repo, "-Sneedle", "--", ".env") == []
    assert ours(repo, "-Sneedle", "--reveal", "--", ".env") == ["n2", "n1"]


def test_side_whose_key_is_missing_is_not_counted_as_empty(repo: Repo) -> None:
    repo.write(".env", "A=const\nB=1\n")
    repo.run("envlog", "capture", "-m", "n1", check=True)
    places = [Path(one) for one in (repo.path / ".git", repo.env["XDG_CONFIG_HOME"])]
    old = [one for place in places for one in place.rglob("keys/*") if re.fullmatch("[0-9a-f]{32}", one.name)]
    repo.run("envlog", "key", "new", check=True)
    repo.write(".env", "A=const\nB=2\n")
    repo.run("envlog", "capture", "-m", "n2", check=True)
    for one in old:
        one.unlink()
    assert ours(repo, "-Sconst", "--reveal", "--", ".env") == []


def test_reveal_alone_is_refused(repo: Repo) -> None:
    done = repo.run("envlog", "--reveal")
    assert (done.status, "--reveal needs -S or -G" in done.err) == (129, True)


FEW = st.lists(st.sampled_from((b"\0", b"\1")), max_size=6).map(b"".join)


@given(st.lists(FEW), FEW.filter(bool))
def test_text_is_counted_the_same_in_any_blocks(blocks: list[bytes], text: bytes) -> None:
    assert count_text(blocks, text, False) == b"".join(blocks).count(text)


def test_word_that_is_a_removed_path_gets_a_hint(repo: Repo) -> None:
    repo.write("gone", "x")
    repo.run("envlog", "capture", "-m", "first", check=True)
    (repo.path / "gone").unlink()
    repo.run("envlog", "capture", "-m", "second", check=True)
    done = repo.run("envlog", "gone")
    assert done.status == 4
    assert "git envlog -- gone" in done.err
    assert "git envlog -- " not in repo.run("envlog", "@{25:99}").err
