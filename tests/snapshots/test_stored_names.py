"""Names in a tree: git refuses and interprets none of them, and no name is lost, judged by C git."""

from __future__ import annotations

import io
import os
import random
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath
from git_envhist.objects.trees import DIRECTORY, FILE, LINK, encode_tree
from git_envhist.snapshots import stored_names as rules_of_names
from git_envhist.snapshots.stored_names import (
    may_need_escape,
    must_escape,
    stored_name,
    stored_path,
    true_name,
    true_path,
)
from tests.objects.objects_by_hand import put_commit, put_object, put_tree
from tests.support.repository import Repo, make_repo

IGNORED = [
    chr(point).encode()
    for point in (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
]
OBEYED = (b".git", b".gitmodules", b".gitattributes", b".gitignore", b".mailmap", b".envhist")
SHORT = (
    *(
        b"git~1",
        b"git~2",
        b"gitmod~1",
        b"gitmod~4",
        b"gitmod~5",
        b"gitatt~1",
        b"gitatt~3",
        b"gitign~1",
        b"mailma~2",
    ),
    *(b"gi7eba~1", b"gi7eb~12", b"gi7e~123", b"gi7~1234", b"gi~12345", b"g~123456", b"~1234567", b"~0234567"),
    *(
        b"gi7d29~9",
        b"gi7d2~10",
        b"gi250a~1",
        b"maba30~1",
        b"mab~1234",
        b"gi7eba~0",
        b"gi7eba~1x",
        b"gi7ebaa~1",
    ),
)
BEHIND = (
    *(
        b"",
        b".",
        b" ",
        b". .",
        b":x",
        b"::$INDEX_ALLOCATION",
        b" .:a",
        b"\\",
        b"\\x",
        b" \\.git",
        b"x",
        b"\n",
        b"~1",
    ),
    *(
        b"\xff",
        b"\xc3",
        b"\xe2\x80",
        b"\xe2\xe2\x80\x8c\x80\x80",
        b"\xed\xa0\x80",
        b"\xef\xbf\xbe",
        b"\xef\xbf\xbd",
    ),
    *(
        b"\xc0\xae",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98\x80",
        b"\xe0\x80\x80",
        b"\xf5x",
        b"\xe2\x80\x8b",
        b"%41",
    ),
    *(
        b"\x80",
        b"\xc3\xa9",
        b"\xef\xbf\xbf",
        b"\xf8\x88\x80\x80\x80",
        b"\xe2\x80\x8c\xff",
        b" \xff",
        b".\xe2\x80\x8c",
    ),
)
BEFORE = (b"", b"", b"", b"x\\", b"\\", b"a\\b\\", b"x", b"%", b"%41\\", b"\xe2\x80\x8cx\\")
IMPOSSIBLE = (b"", b".", b"..", b"a/b", b"/", b"a\0", b"\0")


def disguise(before: bytes, word: bytes, at: int, ignored: bytes, upper: bool, behind: bytes) -> bytes:
    at = min(at, len(word))
    name = before + word[:at] + ignored + word[at:] + behind
    return name.upper() if upper else name


names = st.binary(min_size=1, max_size=40).filter(
    lambda name: name not in IMPOSSIBLE and b"/" not in name and b"\0" not in name
)
percents = st.lists(
    st.sampled_from((b"%", b"2", b"5", b"e", b"E", b"%25", b"%2f", b"\\", b".git", b"z")), min_size=1
)
disguised = st.builds(
    disguise,
    st.sampled_from(BEFORE),
    st.sampled_from(OBEYED + SHORT),
    st.integers(0, 15),
    st.sampled_from((b"", *IGNORED)),
    st.booleans(),
    st.sampled_from(BEHIND),
)
any_name = st.one_of(names, percents.map(b"".join), disguised)


@given(any_name, st.booleans(), st.booleans())
@example(b".git", False, False)
@example(b"%2egit", True, True)
@example(b"%", False, False)
@example(b"%%41", False, False)
@example(b"%41\\.git", False, False)
@example(b"%a\\.GIT%25", False, False)
@example(b".envhist", True, False)
@example(b".git\n", False, False)
def test_stored_name_is_accepted_by_git_and_converts_back(name: bytes, top: bool, link: bool) -> None:
    stored = stored_name(name, top=top, link=link)
    assert true_name(stored) == name
    assert not must_escape(stored, top=top, link=link)
    assert b"/" not in stored
    assert b"\0" not in stored


@given(st.lists(any_name, max_size=6), st.booleans(), st.booleans())
def test_unsuspicious_names_are_stored_literally(found: list[bytes], top: bool, link: bool) -> None:
    if not may_need_escape(b"\0".join(found)):
        assert [stored_name(name, top=top, link=link) for name in found] == found
    for name in found:
        if stored_name(name, top=top, link=link) != name:
            assert may_need_escape(b"\0".join([b"a", name, b"b"]))


def test_ordinary_names_are_not_suspicious() -> None:
    ordinary = (
        b"a.py",
        b".github",
        b".gitlab-ci.yml",
        b"gitk",
        b"100%",
        b"%zz",
        b"~",
        b"~backup",
        b"...",
        b"git",
        b"\xff",
    )
    assert not may_need_escape(b"\0".join(ordinary))
    assert not may_need_escape(b"")


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        (b".git", b"%2egit"),
        (b".GIT. ", b"%2eGIT. "),
        (b"git~1", b"%67it~1"),
        (b"x\\.git", b"%78%5c.git"),
        (b".git\\a\\b", b"%2egit%5ca%5cb"),
        ("\u200c.git".encode(), b"%e2\x80\x8c.git"),
        (b".gitattributes", b"%2egitattributes"),
        (b".gitmodules::$DATA", b"%2egitmodules::$DATA"),
        (b"GI7EBA~1", b"%47I7EBA~1"),
        (b"100%25", b"100%2525"),
        (b"%2Fx", b"%252Fx"),
        (b"100%", b"100%"),
        (b"a\\b", b"a\\b"),
        (b".gitignore", b".gitignore"),
        (b".envhist", b".envhist"),
    ],
)
def test_escape_has_the_documented_format(name: bytes, stored: bytes) -> None:
    assert stored_name(name) == stored


def test_links_and_top_have_additional_escaped_names() -> None:
    assert stored_name(b".gitignore", link=True) == b"%2egitignore"
    assert stored_name(b".mailmap", link=True) == b"%2emailmap"
    assert stored_name(b".EnvHist", top=True) == b"%2eEnvHist"
    assert (
        stored_path(EnvPath(b".envhist/.envhist/.gitignore"), link=True)
        == b"%2eenvhist/.envhist/%2egitignore"
    )
    assert stored_path(EnvPath(b".gitattributes/x")) == b"%2egitattributes/x"
    assert stored_path(EnvPath(b"")) == b""


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_name_is_not_stored(name: bytes) -> None:
    with pytest.raises(ValueError, match="not a name"):
        stored_name(name)


@pytest.mark.parametrize(
    "stored",
    [
        *(b"", b".", b"..", b"a/b", b"a\0b", b"%2e", b"%2e%2e", b".%2e", b"%2f", b"a%2fb", b"%00", b"a%00"),
        *(
            b".git",
            b".GIT",
            b"git~1",
            b".gitattributes",
            b".gitmodules ",
            b"x\\.git",
            b".git:%41",
            b"%78\\.git",
        ),
        *(
            b"%61",
            b"a%62",
            b"%2Egit",
            b"%2egit%5Ca",
            b"%2eg%69t",
            b"%2egithub",
            b"%41\\.git",
            b"%25",
            b"%2egit%20",
        ),
    ],
)
def test_name_that_is_never_stored_is_damage(stored: bytes) -> None:
    with pytest.raises(Damaged):
        true_name(stored)


@given(st.lists(any_name, min_size=1, max_size=5))
def test_paths_survive_a_round_trip(parts: list[bytes]) -> None:
    path = EnvPath(b"/".join(parts))
    assert true_path(stored_path(path)) == path
    assert true_path(stored_path(path, link=True)) == path


@pytest.mark.parametrize(
    "stored", [b".envhist", b".ENVHIST/x", b".envhist/manifest/00", b"a//b", b"/a", b"a/", b"a/../b"]
)
def test_path_outside_the_environment_is_damage(stored: bytes) -> None:
    with pytest.raises(Damaged):
        true_path(stored)


def candidates() -> list[bytes]:
    chosen = random.Random(7)
    found = set(SHORT) | {word + behind for word in OBEYED + SHORT for behind in BEHIND}
    found |= {before + word for word in OBEYED + SHORT for before in BEFORE}
    found |= {word[:2] + ignored + word[2:] for word in OBEYED for ignored in IGNORED}
    while len(found) < 2500:
        found.add(
            disguise(
                chosen.choice(BEFORE),
                chosen.choice(OBEYED + SHORT),
                chosen.randrange(16),
                chosen.choice((b"", b"", *IGNORED)),
                chosen.random() < 0.3,
                chosen.choice(BEHIND),
            )
        )
    return sorted(name for name in found if name not in IMPOSSIBLE)


def names_refused_by_fsck(
    repo: Repo, names_and_modes: list[tuple[bytes, int]], spell: bool
) -> set[tuple[bytes, int]]:
    """Store each name in a separate tree, with content about which git complains if it interprets the name."""
    git_dir = repo.path / ".git"
    owner = {}
    for number, (name, mode) in enumerate(names_and_modes):
        content = b'[submodule "../%d"]\n\tpath = x\n\turl = -u\n#%b\n' % (number, b"a" * 3000)
        blob = put_object(git_dir, b"blob", content)
        held = stored_name(name, link=mode == LINK) if spell else name
        owner[blob.hex()] = (name, mode)
        owner[put_tree(git_dir, (held, mode, blob)).hex()] = (name, mode)
    # git applies its rules only to objects of the repository; no reference is needed.
    done = repo.run_git("fsck", "--strict", "--no-dangling", "--no-progress", check=False)
    assert spell is False or (done.status, done.stdout, done.stderr) == (0, b"", b"")
    said = done.stdout + done.stderr
    return {owner[oid] for oid in re.findall(r"[0-9a-f]{40}", said.decode()) if oid in owner}


@pytest.mark.parametrize("mode", [FILE, LINK], ids=["files", "links"])
def test_names_that_git_fsck_refuses_are_escaped(tmp_path: Path, mode: int) -> None:
    held = [(name, mode) for name in candidates()]
    refused = names_refused_by_fsck(make_repo(tmp_path / "plain"), held, spell=False)
    assert len(refused) > 300
    assert {name for name, _ in refused if not must_escape(name, link=mode == LINK)} == set()
    assert names_refused_by_fsck(make_repo(tmp_path / "stored"), held, spell=True) == set()


def snapshot_of_everything(repo: Repo, odd: list[bytes]) -> str:
    """Return a commit with each name as a file, as a link in `links/`, and above a file in `below/`."""
    git_dir = repo.path / ".git"
    blob = put_object(git_dir, b"blob", b"* text eol=crlf filter=x\n[submodule]\n")
    target = put_object(git_dir, b"blob", b"nowhere")
    inner = put_object(git_dir, b"tree", encode_tree([(b"file", FILE, blob)]))
    links = encode_tree([(stored_name(name, link=True), LINK, target) for name in odd])
    below = encode_tree([(stored_name(name), DIRECTORY, inner) for name in odd])
    top = [(stored_name(name, top=True), FILE, blob) for name in odd]
    top.append((b"links", DIRECTORY, put_object(git_dir, b"tree", links)))
    top.append((b"below", DIRECTORY, put_object(git_dir, b"tree", below)))
    return put_commit(git_dir, put_object(git_dir, b"tree", encode_tree(top)))


@pytest.fixture
def odd() -> list[bytes]:
    every = [name for name in candidates() if len(name) < 80]
    return sorted({*every[::12], b".gitattributes", b".gitmodules", b".git"})


def test_strict_remote_accepts_every_stored_name(repo: Repo, tmp_path: Path, odd: list[bytes]) -> None:
    commit = snapshot_of_everything(repo, odd)
    remote = make_repo(tmp_path / "remote.git", bare=True)
    for key in ("receive.fsckObjects", "core.protectHFS", "core.protectNTFS"):
        remote.git("config", key, "true")
    repo.git("push", "-q", str(remote.path), f"{commit}:refs/envhist/heads/here/repo-000000")
    assert b"in tree" not in remote.run_git("fsck", "--strict", "--no-progress").stderr


def test_plain_git_checkout_is_exact_and_runs_no_filter(repo: Repo, tmp_path: Path, odd: list[bytes]) -> None:
    for key in ("core.protectHFS", "core.protectNTFS"):
        repo.git("config", key, "true")
    repo.git("config", "filter.x.smudge", "sed s/text/SMUDGED/")
    commit = snapshot_of_everything(repo, odd)
    then = tmp_path / "then"
    repo.git("worktree", "add", "-q", "--detach", str(then), commit)
    for name in odd:
        content = (
            os.fsencode(then) + b"/" + stored_name(name, top=True),
            b"/below/" + stored_name(name) + b"/file",
        )
        assert Path(os.fsdecode(content[0])).read_bytes() == b"* text eol=crlf filter=x\n[submodule]\n"
        assert Path(os.fsdecode(os.fsencode(then) + content[1])).read_bytes().startswith(b"* text eol=crlf")
        assert os.readlink(os.fsencode(then) + b"/links/" + stored_name(name, link=True)) == b"nowhere"


def test_plain_git_archive_is_exact(repo: Repo, odd: list[bytes]) -> None:
    repo.git("config", "filter.x.smudge", "sed s/text/SMUDGED/")
    commit = snapshot_of_everything(repo, odd)
    done = subprocess.run(["git", "archive", commit], cwd=repo.path, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout), encoding="utf-8", errors="surrogateescape") as archive:
        held = {os.fsencode(item.name): archive.extractfile(item) for item in archive if item.isfile()}
        for name in odd:
            file = held[stored_name(name, top=True)]
            assert file is not None
            assert file.read() == b"* text eol=crlf filter=x\n[submodule]\n"


def test_git_interprets_the_names_without_the_escape(repo: Repo) -> None:
    git_dir = repo.path / ".git"
    rules = put_object(git_dir, b"blob", b"* text eol=crlf\n")
    text = put_object(git_dir, b"blob", b"one\ntwo\n")
    tree = put_object(
        git_dir, b"tree", encode_tree([(b".gitattributes", FILE, rules), (b"file", FILE, text)])
    )
    done = subprocess.run(["git", "archive", tree.hex()], cwd=repo.path, capture_output=True, check=True)
    assert b"one\r\ntwo\r\n" in done.stdout


HINTS = [
    b".github",
    b".GitKeep",
    b".gitlab-ci.yml",
    b"hub",
    *IGNORED[:3],
    *OBEYED,
    *SHORT,
    b".GIT",
    b"Git",
    b".",
    b"..",
    b"a",
    b"\0",
    b"\\",
    b"%",
    b"41",
    b"/",
    b" ",
    b":",
    b"\xc3\xa9",
]


@given(st.lists(st.sampled_from(HINTS), max_size=7).map(b"".join))
def test_quick_check_of_names_misses_nothing_that_the_pattern_finds(joined: bytes) -> None:
    assert may_need_escape(joined) == (rules_of_names._suspicious().search(b"\0" + joined) is not None)


@given(st.lists(st.sampled_from(HINTS), max_size=4).map(b"".join), st.booleans(), st.booleans())
def test_table_of_common_names_agrees_with_the_patterns(name: bytes, top: bool, link: bool) -> None:
    found = [rules_of_names._refused()]
    found += [rules_of_names._refused_link()] if link else []
    found += [rules_of_names._reserved()] if top else []
    assert must_escape(name, top=top, link=link) == any(pattern.search(name) for pattern in found)
