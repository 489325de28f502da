"""Push of timelines, notes and names to a strict remote, after a list of everything that is sent."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.model.sharing import without_password
from git_envhist.remote.remotes import TransferLimits, name_for
from git_envhist.secrets.decoded_forms import MADE, decoded_forms
from tests.cli.test_json import validate
from tests.end_to_end.captures import assert_holds, capture, everything_of_git
from tests.remote.conftest import hook, refs, timeline
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def database(repo: Repo, name: str = "app.db", value: str = "x") -> None:
    with closing(sqlite3.connect(repo.path / name)) as connection, connection:
        connection.execute("create table if not exists t (a)")
        connection.execute("insert into t values (?)", (value,))


@pytest.mark.parametrize("transport", ["path", "file", "ssh", "http"])
def test_push_sends_timeline_notes_and_names_over_every_transport(
    repo: Repo, bare: Repo, address: Callable[[str], str], transport: str
) -> None:
    url = address(transport)
    repo.env.update(os.environ)
    repo.git("remote", "set-url", "origin", url)
    repo.write(b"caf\xe9/.gitattributes", b"* text\n")
    repo.write(b"a\rb\x0bc\n?d/e", "an odd name")
    first = capture(repo, "one")
    repo.write("b", "2")
    second = capture(repo, "two", "--name", "start")
    repo.run("envlog", "push", "--yes", check=True)
    assert refs(bare) == refs(repo, "refs/envhist", "refs/notes")
    assert git_fsck(bare.path) == ""
    assert_holds(bare, second, assert_holds(repo, second).listing)
    assert bare.git("rev-parse", f"{second}^") == first
    assert '"name":"start"' in bare.git("log", "-1", "--notes=envhist/*/*", second)


def test_first_push_lists_what_is_sent_and_needs_consent(repo: Repo, bare: Repo) -> None:
    database(repo)
    repo.write(".env", "A=1\n")
    repo.write("node_modules/x/index.js", "1")
    capture(repo, "one")
    done = repo.run("envlog", "push")
    assert done.status == 3
    assert refs(bare) == {}
    for words in ("databases", "app.db", "packages", "sealed", "not encrypted", "--yes"):
        assert words in done.err
    assert repo.run("envlog", "push", "--yes").status == 0
    assert len(refs(bare)) == 2
    repo.write("b")
    capture(repo, "two")
    assert repo.run("envlog", "push").status == 0, "consent is remembered"
    repo.git("remote", "set-url", "origin", f"file://{bare.path}")
    repo.write("c")
    capture(repo, "three")
    assert repo.run("envlog", "push").status == 3, "a new address needs new consent"


def test_hint_of_the_first_push_repeats_the_remote(repo: Repo, bare: Repo) -> None:
    capture(repo, "one")
    there = f"file://{bare.path.with_name('other one.git')}"
    bare.git("clone", "-q", "--bare", str(bare.path), str(bare.path.with_name("other one.git")))
    done = repo.run("envlog", "push", "--allow", "a b", there, timeline(repo))
    assert done.status == 3
    hint = done.err.splitlines()[-1].partition(": git envlog push ")[2]
    assert shlex.split(hint) == ["--yes", "--allow", "a b", there, timeline(repo)]


def test_dry_run_sends_and_stores_nothing(repo: Repo, bare: Repo) -> None:
    database(repo, value=TOKEN)
    capture(repo, "one")
    done = repo.run("envlog", "push", "--dry-run", "--yes", check=True)
    assert "new" in done.out
    assert "would be refused: tokens" in done.err
    assert refs(bare) == {}
    assert repo.run("envlog", "push").status == 3


def test_json_of_push_matches_the_schema(repo: Repo, bare: Repo) -> None:
    database(repo)
    capture(repo, "one")
    for words in (("--dry-run",), ("--yes",), ()):
        told = json.loads(repo.run("envlog", "push", "--json", *words, check=True).out)
        validate("pushed", told)
    assert told["timelines"] == [{"timeline": timeline(repo), "status": "up-to-date"}]
    repo.write("b")
    capture(repo, "two")
    refused = json.loads(repo.run("envlog", "push", "--json", f"file://{bare.path}").out)
    validate("failure", refused)
    assert refused["error"]["code"] == "first-push"


@pytest.mark.parametrize("place", ["server.log", "app.db", "big.bin"])
def test_push_refuses_a_token_and_never_prints_it(repo: Repo, bare: Repo, place: str) -> None:
    if place.endswith(".db"):
        database(repo, place, TOKEN)
    else:
        # Both are too large for the token scan of a capture; the second is stored in chunks.
        size = (70 << 10) if place.endswith(".log") else (9 << 20)
        repo.write(place, b"\0" * (size // 2) + f" {TOKEN} ".encode() + os.urandom(size // 2))
    capture(repo, "one")
    done = repo.run("envlog", "push", "--yes")
    assert done.status == 3
    assert refs(bare) == {}
    assert f"'{place}' (GitHub tokens)" in done.err
    assert TOKEN[8:] not in done.err + done.out
    assert "envhist.secret" in done.err
    assert repo.run("envlog", "push", "--yes", "--allow", place).status == 0
    assert len(refs(bare)) == 2


def test_push_refuses_a_secret_in_a_message_or_a_note_that_an_older_version_wrote(
    repo: Repo, bare: Repo
) -> None:
    capture(repo, "log in with password Tr0ub4dor")
    repo.run("envlog", "note", "-m", "mysql -pTr0ub4dor shop", check=True)
    assert "***" in repo.git("log", "-1", "--format=%B", "--glob=refs/envhist/heads/*")
    repo.run("envlog", "push", "--yes", "--dry-run", check=True)
    # Replace them by the same texts unmasked, as an older version stored them.
    (head,), (note,) = (
        repo.git("for-each-ref", "--format=%(refname)", f"refs/{place}").splitlines()
        for place in ("envhist/heads", "notes/envhist")
    )
    raw = repo.git("cat-file", "commit", head).replace("***", "Tr0ub4dor")
    raw = "\n".join(line for line in raw.split("\n") if not line.startswith("Env-Mac"))
    commit = repo.git("hash-object", "-t", "commit", "-w", "--stdin", input=raw + "\n")
    repo.git("update-ref", head, commit)
    old = '{"at":"2026-11-18T10:00:00+00:00","kind":"note","text":"mysql -pTr0ub4dor shop"}\n'
    repo.git("notes", "--ref", note, "add", "-f", "-F", "-", commit, input=old)
    done = repo.run("envlog", "push", "--yes")
    assert done.status == 3
    assert f"'message {commit[:7]}' (a secret in its text; git envlog drop {commit[:7]})" in done.err
    assert "'note " in done.err
    assert "Tr0ub4dor" not in done.err + done.out
    assert refs(bare) == {}


def zipped(token: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", b"x" * 100 + b" " + token)
    return written.getvalue()


HIDDEN = {
    "node_modules/.cache/babel/a.json": lambda token: b"[" + token,
    "target/debug/build/out.txt": lambda token: b"(" + token,
    "vendor/lib/settings.py": lambda token: b"T = '" + token + b"'",
    ".terraform/modules/m/main.tf": lambda token: token,
    "src/__pycache__/a.cpython-311.pyc": lambda token: b"\xa7\r\r\n\0\0\0\0\xda" + token + b"\xa9\0",
    ".venv/lib/python3.11/site-packages/x.pth": lambda token: (
        b"import os; os.environ['T'] = '" + token + b"'"
    ),
    "deploy.ps1": lambda token: bytes(100) + ("$t = '" + token.decode() + "'").encode("utf-16-le"),
    "big-endian.bin": lambda token: bytes(101) + token.decode().encode("utf-16-be"),
    "server.log.1.gz": lambda token: gzip.compress(b"GET / " + token),
    "data.bz2": bz2.compress,
    "data.xz": lzma.compress,
    "data.zlib": zlib.compress,
    "archive.zip": zipped,
    "manifest.txt": lambda token: b"data: " + base64.b64encode(b"token=" + token),
    "mail.eml": lambda token: base64.encodebytes(b"a" * 50 + b" " + token + b" " + b"b" * 50),
    "twice.txt": lambda token: base64.b64encode(gzip.compress(token * 3)),
    "key.bin": lambda token: b"\xfe\xed\xfe\xed" + bytes(20),
}


def test_push_refuses_a_token_in_any_directory_and_form(repo: Repo, bare: Repo) -> None:
    for place, hide in HIDDEN.items():
        repo.write(place, hide(TOKEN.encode()))
    repo.git("config", "--add", "envhist.secret", "!/key.bin")
    capture(repo, "one")
    done = repo.run("envlog", "push", "--yes", "--dry-run", "--json")
    found = {token["path"] for token in json.loads(done.out)["tokens"]}
    assert found == set(HIDDEN)
    assert refs(bare) == {}
    words = [
        word
        for place in ("node_modules/", "target", "vendor", ".terraform", "src", ".venv")
        for word in ("--allow", place)
    ]
    words += [word for place in HIDDEN if "/" not in place for word in ("--allow", place)]
    assert repo.run("envlog", "push", "--yes", *words).status == 0


def test_push_refuses_a_token_in_a_compressed_chunked_file(repo: Repo, bare: Repo) -> None:
    noise = os.urandom(12 << 20)
    repo.write("big.log.gz", gzip.compress(noise + b"\n" + TOKEN.encode() + b"\n" + noise[:1000], 1))
    capture(repo, "one")
    assert "'big.log.gz' (GitHub tokens)" in repo.run("envlog", "push", "--yes").err


def test_new_databases_dumps_classes_and_names_need_new_consent(repo: Repo, bare: Repo) -> None:
    repo.write("a", "1")
    repo.git("config", "--add", "envhist.secret", "!/credentials.json")
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", check=True)
    database(repo, "customers.db")
    repo.write("prod-dump.sql", "-- PostgreSQL database dump\n")
    repo.write("node_modules/x/index.js", "module")
    repo.write("credentials.json", "{}")
    capture(repo, "two")
    before = refs(bare)
    done = repo.run("envlog", "push")
    assert done.status == 3
    assert refs(bare) == before
    for words in ("'customers.db'", "'prod-dump.sql'", "'packages'", "'credentials.json'", "--yes"):
        assert words in done.err
    validate("pushed", told := json.loads(repo.run("envlog", "push", "--dry-run", "--json", check=True).out))
    assert len(told["new"]) == 5, "the four new paths and classes, and the class of databases"
    repo.run("envlog", "push", "--yes", check=True)
    database(repo, "customers.db", "y")
    repo.write("prod-dump.sql", "-- PostgreSQL database dump\n2")
    capture(repo, "three")
    assert repo.run("envlog", "push").status == 0, "consent is remembered"


@given(st.binary(max_size=400))
def test_scan_reads_any_bytes_in_every_form(data: bytes) -> None:
    assert next(decoded_forms(data)) == data
    list(decoded_forms(gzip.compress(data)[:-3]))
    list(decoded_forms(b"PK\x03\x04" + data))


def test_scan_limits_decompression() -> None:
    bomb = gzip.compress(bytes(300 << 20), 9)
    assert sum(map(len, decoded_forms(bomb))) <= len(bomb) + MADE


def test_sent_objects_are_not_scanned_again(repo: Repo, bare: Repo) -> None:
    database(repo, value=TOKEN)
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", "--allow", "app.db", check=True)
    repo.write("b")
    capture(repo, "two")
    assert repo.run("envlog", "push").status == 0


def test_push_does_not_change_user_data(repo: Repo, bare: Repo) -> None:
    capture(repo, "one")
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    repo.git("config", "remote.origin.fetch", "+refs/*:refs/remotes/everything/*")
    repo.git("config", "push.followTags", "true")
    repo.git("tag", "-a", "v1", "-m", "v1")
    # The push must not run the user's hooks.
    hooks = repo.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-push").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-push").chmod(0o755)
    before, own = everything_of_git(repo), refs(repo)
    repo.run("envlog", "push", "--yes", check=True)
    assert everything_of_git(repo) == before
    # The push signs the head, in the notes of the timeline.
    notes = f"refs/notes/envhist/{timeline(repo)}"
    assert {**refs(repo), notes: ""} == {**own, notes: ""}
    assert "refs/tags/v1" not in refs(bare)
    (hooks / "pre-push").unlink()
    pushed = refs(bare)
    repo.commit("more")
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert {ref for ref in refs(bare) if "envhist" in ref} == {ref for ref in pushed if "envhist" in ref}


def rewrite(repo: Repo) -> str:
    """Replace the timeline by its newest snapshot alone, as retention does."""
    ref = f"refs/envhist/heads/{timeline(repo)}"
    commit = repo.git("commit-tree", f"{ref}^{{tree}}", "-m", "rewritten")
    repo.git("update-ref", ref, commit)
    return commit


def test_killed_push_that_arrived_is_recognised_as_ours(repo: Repo, bare: Repo) -> None:
    capture(repo, "one")
    capture(repo, "two")
    repo.run("envlog", "push", "--yes", check=True)
    (memory,) = [path for path in (repo.path / ".git/envhist/remotes").iterdir() if len(path.name) == 16]
    capture(repo, "three")
    # Save the push record at the time when the remote has moved its refs and our push has not seen that.
    hook = bare.path / "hooks/post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ncp '{memory}' '{memory}.then'\n")
    hook.chmod(0o755)
    repo.run("envlog", "push", check=True)
    (memory.parent / f"{memory.name}.then").rename(memory)
    hook.unlink()

    repo.run("envlog", "drop", "@~1", check=True)
    assert "rewritten" in repo.run("envlog", "push", check=True).out
    assert len(set(memory.read_text().splitlines())) == len(memory.read_text().splitlines()) == 7


def test_rewritten_timeline_replaces_our_earlier_push(repo: Repo, bare: Repo) -> None:
    capture(repo, "one")
    repo.write("b")
    capture(repo, "two")
    repo.run("envlog", "push", "--yes", check=True)
    commit = rewrite(repo)
    assert "rewritten" in repo.run("envlog", "push", check=True).out
    assert refs(bare)[f"refs/envhist/heads/{timeline(repo)}"] == commit


def test_objects_on_the_remote_are_not_sent_again(repo: Repo, bare: Repo) -> None:
    bare.git("config", "receive.unpackLimit", "1")
    many(repo)
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", check=True)
    hook(bare, BIG_PACKS.format(limit=50_000))
    rewrite(repo)
    assert "rewritten" in repo.run("envlog", "push", check=True).out
    repo.git("config", "envhist.timeline", "lab/another-000001")
    capture(repo, "the same on another timeline")
    assert "new" in repo.run("envlog", "push", check=True).out
    assert set(refs(bare, "refs/envhist")) == set(refs(repo, "refs/envhist"))
    assert git_fsck(bare.path) == ""


def test_push_never_replaces_a_timeline_of_another_writer(repo: Repo, bare: Repo, colleague: Repo) -> None:
    name = "lab/shared-000000"
    for one in (repo, colleague):
        one.git("config", "envhist.timeline", name)
        capture(one, "one")
    repo.run("envlog", "push", "--yes", check=True)
    before, ours = refs(bare), refs(colleague)
    done = colleague.run("envlog", "push", "--yes")
    assert done.status == 3
    assert "other snapshots" in done.err
    assert "git envlog fetch origin" in done.err
    assert (refs(bare), refs(colleague)) == (before, ours), "both timelines are unchanged"
    rewrite(colleague)
    assert colleague.run("envlog", "push", "--yes").status == 3


def test_push_deletes_a_timeline_on_the_remote(repo: Repo, bare: Repo) -> None:
    capture(repo, "one", "--name", "start")
    repo.run("envlog", "push", "--yes", check=True)
    ours = refs(repo)
    done = repo.run("envlog", "push", "origin", "--delete", timeline(repo), check=True)
    assert "deleted" in done.out
    assert refs(bare) == {}
    assert refs(repo) == ours
    gone = repo.run("envlog", "push", "origin", "--delete", timeline(repo))
    assert gone.status == 4
    assert "'origin' has no timeline" in gone.err
    assert repo.run("envlog", "push", check=True).out.count("new") == 1
    assert f"'origin' has {timeline(repo)}" in repo.run("envlog", "push", "--delete", "lab/odd-000000").err


NO_TIMELINES = 'case $1 in refs/envhist/heads/*) echo "no timelines here" >&2; exit 1 ;; esac'
NO_NOTES = 'case $1 in refs/notes/*) echo "no notes here" >&2; exit 1 ;; esac'


@pytest.mark.parametrize("transport", ["path", "ssh", "http"])
def test_timeline_and_notes_move_atomically(
    repo: Repo, bare: Repo, address: Callable[[str], str], transport: str
) -> None:
    url = address(transport)
    repo.env.update(os.environ)
    repo.git("remote", "set-url", "origin", url)
    capture(repo, "one")
    for text, said in ((NO_NOTES, "no notes here"), (NO_TIMELINES, "no timelines here")):
        hook(bare, text, "update")
        done = repo.run("envlog", "push", "--yes")
        assert done.status == 128
        assert f"rejects 'refs/{said.split()[1] if 'notes' in said else 'envhist/heads'}/" in done.err
        assert said in done.err
        assert refs(bare) == {}
    # A server that moves refs one by one gets the timeline last.
    bare.git("config", "receive.advertiseAtomic", "false")
    assert repo.run("envlog", "push").status == 128
    assert not refs(bare, "refs/envhist")
    hook(bare, "exit 0", "update")
    repo.run("envlog", "push", check=True)
    assert refs(bare) == refs(repo, "refs/envhist", "refs/notes")
    hook(bare, "exit 0", "update")
    repo.run("envlog", "push", "--delete", timeline(repo), check=True)
    assert refs(bare) == {}


ENDED = """\
#!/bin/sh
case " $* " in
*" {verb} "*) '{real}' "$@" | head -c {bytes}; kill -KILL $$ ;;
*) exec '{real}' "$@" ;;
esac
"""


@pytest.mark.parametrize(
    ("verb", "bytes", "words"),
    [
        ("merge-base", 0, ("push",)),
        ("symbolic-ref", 0, ("push",)),
        ("--show-scope", 0, ("fetch",)),
        ("for-each-ref", 60, ("push", "origin", "lab/*")),
    ],
)
def test_output_of_a_killed_git_is_ignored(
    repo: Repo, bare: Repo, tmp_path: Path, verb: str, bytes: int, words: tuple[str, ...]
) -> None:
    for name in ("lab/a-000001", "lab/b-000002"):
        repo.git("config", "envhist.timeline", name)
        capture(repo, "one")
    repo.run("envlog", "push", "--yes", "origin", "lab/*", check=True)
    repo.write("b")
    capture(repo, "two")
    before = refs(bare)
    program = tmp_path / "ended" / "git"
    program.parent.mkdir()
    real = shutil.which("git", path=repo.env["PATH"])
    program.write_text(ENDED.format(verb=verb, bytes=bytes, real=real))
    program.chmod(0o755)
    path = os.pathsep.join((str(program.parent), repo.env["PATH"]))
    done = repo.run("envlog", *words, env={"PATH": path})
    assert done.status == 128, done.out + done.err
    assert "ended by signal 9" in done.err
    assert refs(bare) == before
    repo.run("envlog", "push", check=True)


def test_timelines_are_chosen_by_name_or_pattern(repo: Repo, bare: Repo) -> None:
    for name in ("lab/a-000001", "lab/b-000002", "ci/c-000003"):
        repo.git("config", "envhist.timeline", name)
        capture(repo, "one")
    repo.run("envlog", "push", "--yes", "origin", "lab/*", check=True)
    assert {ref for ref in refs(bare) if "heads" in ref} == {
        "refs/envhist/heads/lab/a-000001",
        "refs/envhist/heads/lab/b-000002",
    }
    assert repo.run("envlog", "push", "origin", "nowhere/*").status == 4


BIG_PACKS = """\
find "$GIT_QUARANTINE_PATH" -name '*.pack' -size +{limit}c | grep -q . && echo "pack too large" >&2 && exit 1
exit 0
"""


def many(repo: Repo) -> None:
    for number in range(12):
        repo.write(f"data/{number}", os.urandom(60_000))


def test_large_push_is_sent_in_parts_that_are_deleted_afterwards(repo: Repo, bare: Repo) -> None:
    hook(bare, BIG_PACKS.format(limit=250_000))
    repo.git("config", "receive.unpackLimit", "1")
    bare.git("config", "receive.unpackLimit", "1")
    many(repo)
    commit = capture(repo, "one")
    assert repo.run("envlog", "push", "--yes").status == 128, "the remote enforces its limit"
    repo.git("config", "envhist.uploadSize", "200000")
    assert "in 4 parts" in repo.run("envlog", "push", "--dry-run", check=True).out
    repo.run("envlog", "push", check=True)
    assert set(refs(bare)) == {ref for ref in refs(repo) if "envhist" in ref}
    assert_holds(bare, commit, assert_holds(repo, commit).listing)
    bare.git("gc", "-q", "--prune=now")
    assert git_fsck(bare.path) == ""


def test_interrupted_upload_is_continued(repo: Repo, bare: Repo) -> None:
    bare.git("config", "receive.unpackLimit", "1")
    repo.git("config", "envhist.uploadSize", "200000")
    many(repo)
    commit = capture(repo, "one")
    # The remote accepts two parts, then rejects the rest.
    hook(bare, 'test "$(git for-each-ref refs/envhist/upload | wc -l)" -lt 2')
    assert repo.run("envlog", "push", "--yes").status == 128
    assert not [ref for ref in refs(bare) if "/heads/" in ref]
    there = len(bare.git("cat-file", "--batch-all-objects", "--batch-check").splitlines())
    assert there > 6
    # The parts on the remote are not sent again.
    assert "in 2 parts" in repo.run("envlog", "push", "--dry-run", check=True).out
    hook(bare, BIG_PACKS.format(limit=250_000))
    repo.run("envlog", "push", check=True)
    assert not refs(bare, "refs/envhist/upload")
    assert_holds(bare, commit, assert_holds(repo, commit).listing)
    assert not list((repo.path / ".git" / "envhist" / "remotes").glob("*.upload"))


def test_interrupted_push_loses_at_most_one_part() -> None:
    assert TransferLimits().upload_size <= 200_000_000, "a part takes at most 20 minutes at 10 MB per minute"


def test_push_removes_upload_refs_of_an_interrupted_push(repo: Repo, bare: Repo) -> None:
    repo.git("config", "envhist.uploadSize", "200000")
    many(repo)
    capture(repo, "one")
    # The whole upload arrives, but the remote refuses to delete the refs of its parts.
    hook(bare, "while read -r old new ref; do case $new in *[!0]*) ;; *) exit 1 ;; esac; done")
    assert repo.run("envlog", "push", "--yes").status == 128
    assert refs(bare, "refs/envhist/heads")
    assert refs(bare, "refs/envhist/upload")
    hook(bare, "exit 0\n")
    assert "up to date" in repo.run("envlog", "push", check=True).out
    assert not refs(bare, "refs/envhist/upload")
    assert not list((repo.path / ".git" / "envhist" / "remotes").glob("*.upload"))


def test_killed_push_leaves_a_complete_timeline_or_none(repo: Repo, bare: Repo) -> None:
    many(repo)
    commit = capture(repo, "one")
    fifo = bare.path / "reached"
    os.mkfifo(fifo)
    hook(bare, f"echo reached > {fifo}; cat {fifo} > /dev/null; exit 1\n")
    words = ["git-envlog", "push", "--yes"]
    with subprocess.Popen(words, cwd=repo.path, env=repo.env, start_new_session=True) as child:
        with fifo.open() as reached:
            assert reached.read() == "reached\n"
        os.killpg(child.pid, signal.SIGKILL)
    # Release the hook if it still waits.
    writer = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    os.close(writer)
    assert not refs(bare)
    hook(bare, "exit 0\n")
    repo.run("envlog", "push", "--yes", check=True)
    assert_holds(bare, commit, assert_holds(repo, commit).listing)
    assert git_fsck(bare.path) == ""


def test_too_large_object_is_refused_before_anything_is_sent(repo: Repo, bare: Repo) -> None:
    repo.git("config", "envhist.largestObject", "200k")
    repo.write("dump.bin", os.urandom(300_000))
    capture(repo, "one")
    done = repo.run("envlog", "push", "--yes")
    assert done.status == 3
    assert "'dump.bin' (300,000 bytes)" in done.err
    assert refs(bare) == {}
    assert repo.run("envlog", "push", "--yes", "--allow", "dump.bin").status == 0


def test_configured_remote_is_used_for_the_history(repo: Repo, bare: Repo) -> None:
    repo.git("remote", "set-url", "origin", "/nowhere")
    repo.git("config", "envhist.remote", f"file://{bare.path}")
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", check=True)
    assert len(refs(bare)) == 1 + len(refs(repo, "refs/notes"))


@pytest.mark.parametrize(
    "word", ["-x", "--upload-pack=touch pwned", "ext::sh -c touch% pwned", "nowhere", "--exec=touch pwned"]
)
def test_invalid_arguments_run_nothing(repo: Repo, word: str) -> None:
    capture(repo, "one")
    repo.git("config", "envhist.remote", word)
    done = repo.run("envlog", "push", "--yes")
    assert done.status in (3, 128, 129)
    assert done.err.startswith("error: ")
    assert not list(repo.path.rglob("pwned"))


def test_remote_output_is_escaped_for_the_terminal(repo: Repo, bare: Repo) -> None:
    hook(bare, "printf 'no \\033]0;owned\\007 \\233 thanks\\n' >&2; exit 1\n")
    capture(repo, "one")
    done = repo.run("envlog", "push", "--yes")
    assert done.status == 128
    assert "thanks" in done.err
    assert b"\x1b" not in done.stderr
    assert b"\x07" not in done.stderr
    assert refs(bare) == {}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:s3cret@example.com/a.git", "https://example.com/a.git"),
        ("https://ghp_s3cret@example.com/a.git", "https://example.com/a.git"),
        ("https://me:s3@cret@example.com", "https://example.com"),
        ("ssh://git:s3cret@example.com/a.git", "ssh://git@example.com/a.git"),
        ("ssh://git@example.com/a.git", "ssh://git@example.com/a.git"),
        ("git@example.com:a.git", "git@example.com:a.git"),
        ("cannot read 'https://example.com': a@b", "cannot read 'https://example.com': a@b"),
        ("'https://x:s3cret@example.com/': 403", "'https://example.com/': 403"),
    ],
)
def test_address_is_shown_and_named_without_its_password(address: str, shown: str) -> None:
    assert without_password(address) == shown
    assert name_for(address) == name_for(shown)
    assert "s3" not in name_for(address)


def test_push_without_history_or_remote_has_a_hint(repo: Repo) -> None:
    assert "git config envhist.remote" in repo.run("envlog", "push").err
    repo.git("remote", "add", "origin", "/nowhere/at/all")
    done = repo.run("envlog", "push")
    assert done.status in (4, 128)
    assert "hint" in done.err


def test_timeline_rewritten_by_retention_replaces_our_push_and_keeps_ids(
    repo: Repo, bare: Repo, colleague: Repo
) -> None:
    ids = []
    for number in range(3):
        repo.write("b", str(number))
        ids.append(capture(repo, f"snapshot {number}"))
    repo.run("envlog", "note", "-m", "it went well", check=True)
    repo.run("envlog", "push", "--yes", check=True)
    colleague.run("envlog", "fetch", check=True)
    repo.run("envlog", "drop", "@~1", check=True)
    assert "rewritten" in repo.run("envlog", "push", check=True).out
    told = json.loads(colleague.run("envlog", "fetch", "--json", check=True).out)
    line = f"origin/{timeline(repo)}"
    assert told["timelines"] == [{"timeline": line, "status": "rewritten"}]
    listed = json.loads(colleague.run("envlog", "--json", line, check=True).out)
    assert [one["id"] for one in listed] == [ids[2], ids[0]]
    assert "it went well" in colleague.run("envlog", "show", line, check=True).out


def test_purged_token_does_not_stop_a_push(repo: Repo, bare: Repo) -> None:
    database(repo, value=TOKEN)
    capture(repo, "one")
    refused = repo.run("envlog", "push", "--yes")
    assert "git envlog purge 'app.db'" in refused.err
    (repo.path / "app.db").unlink()
    capture(repo, "two")
    repo.run("envlog", "purge", "app.db", check=True)
    repo.run("envlog", "push", "--yes", check=True)
    assert len(refs(bare, "refs/envhist")) == 1
