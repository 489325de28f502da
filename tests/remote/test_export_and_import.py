"""Export of snapshots into one file, and import of such a file without trust in it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from git_envhist.api import EnvHistory
from tests.cli.test_json import validate
from tests.end_to_end.captures import capture, everything_of_git
from tests.remote.conftest import refs, timeline
from tests.remote.test_fetch import refs_of_fetched, take_in_key
from tests.remote.test_push import TOKEN, database
from tests.support.needs import require
from tests.support.oracle import git_fsck, tree_differences
from tests.support.repository import Repo, make_repo, replace_tree

BIG = 300_000
FILE = "handover.envhist.tar.zst"


@pytest.fixture
def colleague(tmp_path: Path, repo: Repo) -> Repo:
    """Return the repository of another user, with a separate home directory."""
    made = make_repo(tmp_path / "theirs")
    made.env["XDG_CONFIG_HOME"] = str(tmp_path / "their-home" / "config")
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / FILE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Make a repository with three snapshots; return its path and their ids, the newest last."""
    repo = make_repo(tmp_path_factory.mktemp("moments") / "repo")
    repo.git("config", "envhist.bigFile", "64k")
    repo.write(".env", "A=1\n")
    repo.write("data.bin", os.urandom(BIG))
    repo.write(b"caf\xe9/.gitattributes", b"* text\n")
    (repo.path / "empty").mkdir()
    first = capture(repo, "one", "--name", "start")
    repo.write("secret-between", "not to leave")
    second = capture(repo, "two")
    (repo.path / "secret-between").unlink()
    repo.write(".env", "A=2\n")
    third = capture(repo, "three", "--verify", "true")
    repo.run("envlog", "note", "-m", "it went well", check=True)
    return repo.path, [first, second, third]


@pytest.fixture
def moments(model: tuple[Path, list[str]], repo: Repo) -> list[str]:
    """Replace the repository by a copy with three snapshots; return their ids, the newest last."""
    config = repo.git("config", "--list", "--local").splitlines()
    replace_tree(model[0], repo.path)
    for line in config:
        name, _, value = line.partition("=")
        if name.startswith("remote."):
            repo.git("config", name, value)
    return list(model[1])


def listed(repo: Repo, line: str) -> list[dict[str, object]]:
    return list(json.loads(repo.run("envlog", "--json", line, check=True).out))


def bundle_of(file: str) -> bytes:
    with open(file, "rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as stream:
        whole = io.BytesIO(stream.read())
    with tarfile.open(fileobj=whole) as tar:
        member = tar.extractfile("history.bundle")
        assert member is not None
        return member.read()


def write_tar(file: str, *members: tuple[str, bytes]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in members:
            head = tarfile.TarInfo(name)
            head.size = len(data)
            tar.addfile(head, io.BytesIO(data))
    # Python's tarfile pads its last record with zeros; GNU tar and our export end with two zero blocks.
    end = sum(512 + len(data) + -len(data) % 512 for _, data in members) + 1024
    Path(file).write_bytes(zstandard.ZstdCompressor().compress(buffer.getvalue()[:end]))


def test_exported_timeline_is_imported_unchanged(
    repo: Repo, colleague: Repo, moments: list[str], file: str, tmp_path: Path
) -> None:
    repo.run("envlog", "export", file, check=True)
    colleague.run("envlog", "import", file, check=True)
    line = f"handover/{timeline(repo)}"
    take_in_key(repo, colleague)
    assert [one["id"] for one in listed(colleague, line)] == moments[::-1]
    assert listed(colleague, line)[0]["verify"]["status"] == "pass"  # type: ignore[index]
    assert listed(colleague, line)[2]["names"] == ["start"]
    assert "it went well" in colleague.run("envlog", "show", line, check=True).out
    colleague.run("envrestore", "--to", str(tmp_path / "out"), line, check=True)
    assert tree_differences(repo.path, tmp_path / "out") == ()
    assert set(refs(repo, "refs/envhist").values()) <= set(refs_of_fetched(colleague).values())


def test_export_contains_only_the_chosen_snapshots(
    repo: Repo, colleague: Repo, moments: list[str], file: str, tmp_path: Path
) -> None:
    repo.run("envlog", "export", file, "start", "@", check=True)
    assert b"secret-between" not in everything_in(file, tmp_path)
    colleague.run("envlog", "import", file, check=True)
    line = f"handover/{timeline(repo)}"
    found = listed(colleague, line)
    assert [one["id"] for one in found] == [moments[2], moments[0]], "ids do not change"
    assert all(one["trusted"] is False for one in found)
    assert found[0]["verify"]["claimed_by"]  # type: ignore[index]
    take_in_key(repo, colleague)
    found = listed(colleague, line)
    assert all(one["trusted"] for one in found), "the key makes them trusted"
    assert found[0]["verify"]["claimed_by"] is None  # type: ignore[index]
    assert "A=1" in colleague.run("envlog", "show", f"{line}~1", "--", ".env", check=True).out


def everything_in(file: str, place: Path) -> bytes:
    """Return the contents of all objects in an export, as plain git reads them, and the bytes of the file."""
    bundle = place / "history.bundle"
    bundle.write_bytes(bundle_of(file))
    seen = make_repo(place / "plain.git", bare=True)
    seen.git("fetch", "-q", str(bundle), "refs/*:refs/*")
    assert git_fsck(seen.path) == ""
    ids = seen.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return seen.run_git("cat-file", "--batch", input=ids + "\n").stdout + Path(file).read_bytes()


def test_tar_and_git_read_an_export(repo: Repo, moments: list[str], file: str, tmp_path: Path) -> None:
    repo.run("envlog", "export", file, "@", check=True)
    require("zstd")
    subprocess.run(["tar", "--zstd", "-xf", file], cwd=tmp_path, check=True)
    seen = make_repo(tmp_path / "plain.git", bare=True)
    seen.git("fetch", "-q", str(tmp_path / "history.bundle"), "refs/*:refs/*")
    ref = f"refs/envhist/heads/{timeline(repo)}"
    assert "it went well" in seen.git("log", "--notes=envhist/*/*", ref)
    assert seen.git("rev-list", "--count", ref) == "1"
    assert os.stat(file).st_mode & 0o077 == 0


def test_export_and_import_do_not_change_user_data(
    repo: Repo, colleague: Repo, moments: list[str], file: str
) -> None:
    def seen(one: Repo) -> tuple[object, ...]:
        return everything_of_git(one), refs(one), one.git("count-objects", "-v")

    before = seen(repo), seen(colleague)
    repo.run("envlog", "export", file, "@~2..", check=True)
    colleague.run("envlog", "import", file, check=True)
    assert (seen(repo), seen(colleague)) == before
    assert not list((repo.path / ".git/envhist/export").glob("work*"))
    assert not list((colleague.path / ".git/envhist/import").glob("work*"))


def test_json_of_export_and_import_matches_the_schema(
    repo: Repo, colleague: Repo, moments: list[str], file: str
) -> None:
    output = json.loads(repo.run("envlog", "export", "--json", file, "@", check=True).out)
    validate("exported", output)
    assert output["timelines"] == [{"timeline": timeline(repo), "snapshots": [moments[2]]}]
    assert output["bytes"] == os.stat(file).st_size
    output = json.loads(colleague.run("envlog", "import", "--json", file, check=True).out)
    validate("imported", output)
    assert output["name"] == "handover"


def test_export_refuses_a_token_in_plain_text(repo: Repo, file: str) -> None:
    database(repo, value=TOKEN)
    capture(repo, "one")
    done = repo.run("envlog", "export", file)
    assert done.status == 3
    assert "'app.db' (GitHub tokens)" in done.err
    assert TOKEN[8:] not in done.err + done.out
    assert not os.path.exists(file)
    assert repo.run("envlog", "export", file, "--allow", "app.db").status == 0
    assert "app.db" in repo.run("envlog", "export", "--force", file, "--allow", "app.db").err


def test_export_does_not_replace_a_file_without_force(repo: Repo, moments: list[str], file: str) -> None:
    Path(file).write_text("mine")
    assert repo.run("envlog", "export", file).status == 3
    assert Path(file).read_text() == "mine"
    assert repo.run("envlog", "export", "--force", file).status == 0
    assert not list(Path(file).parent.glob(f"{FILE}.new*"))


@pytest.mark.parametrize("there", [False, True])
def test_export_works_without_hard_links(repo: Repo, moments: list[str], file: str, there: bool) -> None:
    """Most USB sticks have file systems without hard links."""
    if there:
        Path(file).write_text("mine")
    require("strace")
    inject = ("strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=link,linkat:error=EPERM")
    done = repo.run("envlog", "export", file, prefix=inject)
    assert done.status == (3 if there else 0), done.err
    assert os.listdir(os.path.dirname(file)).count(FILE) == 1
    assert not [name for name in os.listdir(os.path.dirname(file)) if ".new-" in name]
    assert (Path(file).read_bytes() == b"mine") is there


def test_import_extends_an_earlier_import_or_gets_its_own_name(
    repo: Repo, colleague: Repo, moments: list[str], file: str
) -> None:
    def brought(*words: str) -> tuple[str, str]:
        (one,) = json.loads(colleague.run("envlog", "import", "--json", *words, file, check=True).out)[
            "timelines"
        ]
        return str(one["timeline"]).partition("/")[0], str(one["status"])

    repo.run("envlog", "export", file, check=True)
    assert brought() == ("handover", "new")
    assert brought() == ("handover", "up-to-date")
    repo.write("c")
    capture(repo, "four")
    repo.run("envlog", "export", "--force", file, check=True)
    assert brought() == ("handover", "updated")
    repo.run("envlog", "export", "--force", file, "@", check=True)
    assert brought() == ("handover-2", "new")
    assert brought("--as", "mine") == ("mine", "new")
    assert colleague.run("envlog", "import", "--as", "handover", file).status == 3
    assert len(listed(colleague, f"handover/{timeline(repo)}")) == 4


def test_import_of_an_older_file_keeps_newer_notes(
    repo: Repo, colleague: Repo, moments: list[str], file: str
) -> None:
    repo.run("envlog", "export", file, check=True)
    repo.run("envlog", "note", "-m", "and later", check=True)
    repo.run("envlog", "export", file + "2", check=True)
    for one in (file + "2", file):
        colleague.run("envlog", "import", "--as", "x", one, check=True)
    output = colleague.run("envlog", "show", f"x/{timeline(repo)}", check=True).out
    assert output.count("and later") == output.count("it went well") == 1


def test_remote_and_import_never_share_a_name(
    repo: Repo, bare: Repo, colleague: Repo, moments: list[str], file: str
) -> None:
    repo.run("envlog", "export", file, "@", check=True)
    colleague.git("remote", "add", "origin", str(bare.path))
    assert colleague.run("envlog", "import", "--as", "origin", file).status == 3
    colleague.run("envlog", "import", file, check=True)
    colleague.git("remote", "rename", "origin", "handover")
    assert colleague.run("envlog", "fetch", "handover").status == 3
    assert listed(colleague, f"handover/{timeline(repo)}")


def test_export_contains_later_attachments(repo: Repo, colleague: Repo, file: str) -> None:
    capture(repo, "one")
    EnvHistory.open(str(repo.path), one_command=True).attach(attached=[("talk.txt", b"what was said")])
    repo.write("b")
    capture(repo, "two")
    repo.run("envlog", "export", file, "@~1", check=True)
    colleague.run("envlog", "import", file, check=True)
    take_in_key(repo, colleague)
    line = f"handover/{timeline(repo)}"
    colleague.run("envrestore", line, "--attachments", "../said", check=True)
    assert (colleague.path.parent / "said/talk.txt").read_bytes() == b"what was said"


def test_second_import_adds_later_attachments(repo: Repo, colleague: Repo, file: str) -> None:
    capture(repo, "one")
    for number, name in enumerate(("talk.txt", "more.txt")):
        EnvHistory.open(str(repo.path), one_command=True).attach(attached=[(name, name.encode())])
        repo.run("envlog", "export", f"{file}{number}", check=True)
    for number in (0, 1, 0):
        colleague.run("envlog", "import", "--as", "x", f"{file}{number}", check=True)
    colleague.git("--git-dir", ".git/envhist/fetched.git", "gc", "-q", "--prune=now")
    take_in_key(repo, colleague)
    colleague.run("envrestore", f"x/{timeline(repo)}", "--attachments", "../said", check=True)
    said = {one.name: one.read_bytes() for one in (colleague.path.parent / "said").iterdir()}
    assert said == {"talk.txt": b"talk.txt", "more.txt": b"more.txt"}


def test_fetched_timeline_is_exported_by_its_original_name(
    repo: Repo, bare: Repo, colleague: Repo, moments: list[str], file: str
) -> None:
    repo.run("envlog", "push", "--yes", check=True)
    colleague.git("remote", "add", "origin", str(bare.path))
    colleague.run("envlog", "fetch", check=True)
    output = colleague.run("envlog", "export", "--json", file, f"origin/{timeline(repo)}", check=True).out
    assert json.loads(output)["timelines"] == [{"timeline": timeline(repo), "snapshots": [moments[2]]}]
    repo.run("envlog", "import", file, check=True)
    assert listed(repo, f"handover/{timeline(repo)}")[0]["id"] == moments[2]


@pytest.mark.parametrize(
    "words",
    [("now",), ("nothing-of-that-name",), ("@..@",), ("-x",)],
    ids=["now", "unknown", "empty", "option"],
)
def test_invalid_arguments_export_nothing(
    repo: Repo, moments: list[str], file: str, words: tuple[str, ...]
) -> None:
    done = repo.run("envlog", "export", file, *words)
    assert done.status in (4, 129)
    assert done.err.startswith("error: ")
    assert not os.path.exists(file)


def packed(bare: Repo, ref: str, tip: str) -> bytes:
    """Return a bundle of one ref."""
    bare.git("update-ref", ref, tip)
    return bare.run_git("bundle", "create", "-q", "-", ref).stdout


def commit_of(bare: Repo, tree: bytes, message: str = "x\n\nEnv-Format: 1\nEnv-Timeline: a/b\n") -> str:
    oid = bare.run_git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", input=tree).out.strip()
    return bare.git("commit-tree", oid, "-m", message)


def evil_tree(bare: Repo) -> bytes:
    blob = bare.git("hash-object", "-w", "--stdin", input="x")
    return packed(bare, "refs/envhist/heads/a/b", commit_of(bare, b"100644 .git\0" + bytes.fromhex(blob)))


def missing_blob(bare: Repo) -> bytes:
    ref = "refs/envhist/heads/a/b"
    bare.git("update-ref", ref, commit_of(bare, b"100644 a\0" + bytes(range(20))))
    pack = bare.run_git("pack-objects", "--stdout", "--revs", "--missing=allow-any", "-q",
                        input=f"{ref}\n").stdout  # fmt: skip
    return f"# v2 git bundle\n{bare.git('rev-parse', ref)} {ref}\n\n".encode() + pack


def with_ref(ref: str) -> Callable[[Repo], bytes]:
    def make(bare: Repo) -> bytes:
        return packed(bare, "refs/heads/x", commit_of(bare, b"")).replace(b"refs/heads/x", ref.encode())

    return make


def not_ours(bare: Repo) -> bytes:
    return packed(bare, "refs/envhist/heads/a/b", commit_of(bare, b"", "just a commit"))


def cut_short(bare: Repo) -> bytes:
    return packed(bare, "refs/envhist/heads/a/b", commit_of(bare, b""))[:-30]


def with_a_prerequisite(bare: Repo) -> bytes:
    first, _, rest = packed(bare, "refs/envhist/heads/a/b", commit_of(bare, b"")).partition(b"\n")
    return first + b"\n-" + b"1" * 40 + b" x\n" + rest


def endless_line(bare: Repo) -> bytes:
    return b"# v2 git bundle\n" + b"a" * (1 << 20)


HOSTILE: dict[str, Callable[[Repo], bytes]] = {
    "a tree with .git in it": evil_tree,
    "an object that is missing": missing_blob,
    "a commit that is no snapshot": not_ours,
    "cut short": cut_short,
    "a prerequisite": with_a_prerequisite,
    "an endless line": endless_line,
    "a branch": with_ref("refs/heads/main"),
    "a name that leaves its directory": with_ref("refs/envhist/heads/../../heads/main"),
    "a name with a command": with_ref("refs/envhist/heads/--upload-pack=x/b"),
    "a name with a terminal escape sequence": with_ref("refs/envhist/heads/a/\x1b[2J"),
    "nothing": lambda bare: b"",
    "no pack": lambda bare: b"# v2 git bundle\n" + b"1" * 40 + b" refs/envhist/heads/a/b\n\nPACKnonsense",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_export_is_refused_completely(repo: Repo, tmp_path: Path, file: str, kind: str) -> None:
    bare = make_repo(tmp_path / "evil.git", bare=True)
    write_tar(file, ("envhist-export", b"envhist-export 1\n"), ("history.bundle", HOSTILE[kind](bare)))
    before = refs(repo)
    done = repo.run("envlog", "import", file)
    assert done.status == 128, done.err
    assert done.err.startswith("error: ")
    assert b"\x1b" not in done.stderr
    assert refs(repo) == before
    assert refs_of_fetched(repo) == {}
    assert not list((repo.path / ".git/envhist/fetched.git/objects/pack").glob("*"))


GOOD = ("envhist-export", b"envhist-export 1\n")


@pytest.mark.parametrize(
    "members",
    [
        (("../../evil", b"x"),),
        (GOOD,),
        (GOOD, ("/etc/history.bundle", b"x")),
        (("envhist-export", b"envhist-export 2\n"), ("history.bundle", b"x")),
        (("envhist-export", b"x" * 100_000), ("history.bundle", b"x")),
        (GOOD, ("history.bundle", b"# v2 git bundle\n\n"), ("more", b"x")),
    ],
    ids=["another name", "one member", "an absolute name", "a later version", "a long head", "more members"],
)
def test_other_tar_files_are_refused(repo: Repo, file: str, members: tuple[tuple[str, bytes], ...]) -> None:
    write_tar(file, *members)
    done = repo.run("envlog", "import", file)
    assert done.status == 128
    assert done.err.startswith("error: ")


def test_missing_file_and_wrong_file_have_different_errors(repo: Repo, tmp_path: Path, file: str) -> None:
    assert "no such file" in repo.run("envlog", "import", file).err
    assert "directory" in repo.run("envlog", "import", str(tmp_path)).err
    Path(file).write_bytes(os.urandom(2000))
    assert "not an export file" in repo.run("envlog", "import", file).err
    Path(file).write_bytes(zstandard.ZstdCompressor().compress(bytes(50 << 20)))
    assert "not an export file" in repo.run("envlog", "import", file).err
    assert repo.run("envlog", "import").status == repo.run("envlog", "export").status == 129


@pytest.mark.parametrize("where", [20, 0.5, -20])
def test_flipped_bit_is_detected(repo: Repo, colleague: Repo, file: str, where: float) -> None:
    repo.write("data", os.urandom(100_000))
    capture(repo, "one")
    repo.run("envlog", "export", file, check=True)
    data = bytearray(Path(file).read_bytes())
    at = int(where * len(data)) if isinstance(where, float) else where
    data[at] ^= 4
    Path(file).write_bytes(data)
    done = colleague.run("envlog", "import", file)
    assert done.status == 128
    assert "\\n" not in done.err, "the error is one line"
    assert "fsck" not in done.err, "our own repository is not damaged"
    assert json.loads(colleague.run("envlog", "--all", "--json", check=True).out) == []
