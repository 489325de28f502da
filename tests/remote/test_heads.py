"""Signed heads: fetch detects a server that reorders, replays or drops data, and still gets the other timelines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.errors import Damaged
from git_envhist.snapshots.heads import Head, read_head, write_head
from tests.cli.test_json import validate
from tests.remote.conftest import refs, timeline
from tests.support.needs import require
from tests.support.repository import Repo

HEADS, NOTES = "refs/envhist/heads/", "refs/notes/envhist/"


def fetched(repo: Repo) -> dict[str, str]:
    git_dir = repo.path / ".git/envhist/fetched.git"
    lines = repo.git(f"--git-dir={git_dir}", "for-each-ref", "--format=%(refname) %(objectname)")
    return dict(line.split(" ") for line in lines.splitlines())


def answer(reader: Repo, *words: str, status: int = 0) -> dict[str, list[dict[str, str]]]:
    done = reader.run("envlog", "fetch", "--json", *words)
    assert done.status == status, done.err
    told: dict[str, list[dict[str, str]]] = json.loads(done.out)
    validate("fetched", told)
    return told


@pytest.fixture
def pushed(repo: Repo, bare: Repo) -> str:
    """Push three snapshots, the second with a failed check, the others passed; return the name of their timeline."""
    for name in ("one", "two", "three"):
        repo.write(name)
        check = "false" if name == "two" else "true"
        repo.run("envlog", "capture", "--verify", check, name, check=True)
    repo.run("envlog", "push", "--yes", check=True)
    return timeline(repo)


@pytest.fixture
def reader(colleague: Repo, repo: Repo, pushed: str) -> Repo:
    """Return a colleague's repository that has the sealing key."""
    exported = repo.run("envlog", "key", "export", check=True).out
    colleague.run("envlog", "key", "import", input=exported, check=True)
    return colleague


def rewound(bare: Repo, name: str) -> None:
    bare.git("update-ref", HEADS + name, f"{HEADS}{name}~1")


def reordered(bare: Repo, name: str) -> None:
    """Swap the two newest snapshots: their own signatures do not cover the parent."""
    tip, middle = bare.git("rev-list", "-2", HEADS + name).splitlines()
    base = bare.git("rev-parse", f"{middle}^")
    for commit in (tip, middle):
        text = bare.run_git("cat-file", "commit", commit).stdout
        parent = bare.git("rev-parse", f"{commit}^").encode()
        text = text.replace(b"parent " + parent, b"parent " + base.encode(), 1)
        base = bare.git("hash-object", "-t", "commit", "-w", "--stdin", input=text)
    bare.git("update-ref", HEADS + name, base)


def without_the_fail(bare: Repo, name: str) -> None:
    """Remove the note of the failed snapshot with plain git, in a commit after the signed one."""
    failed = bare.git("rev-list", "-2", HEADS + name).splitlines()[1]
    bare.git("notes", f"--ref={NOTES}{name}", "remove", failed)


def without_history_of_the_fail(bare: Repo, name: str) -> None:
    """Remove the note of the failed snapshot and the history of the notes."""
    without_the_fail(bare, name)
    new = bare.git("commit-tree", "-m", "x", f"{NOTES}{name}^{{tree}}")
    bare.git("update-ref", NOTES + name, new)


def without_head(bare: Repo, name: str) -> None:
    rows = bare.git("ls-tree", NOTES + name).splitlines()
    tree = bare.git("mktree", input="".join(f"{row}\n" for row in rows if not row.endswith("\thead")))
    bare.git("update-ref", NOTES + name, bare.git("commit-tree", "-m", "x", tree))


def without_notes(bare: Repo, name: str) -> None:
    bare.git("update-ref", "-d", NOTES + name)


ATTACKS = [rewound, reordered, without_the_fail, without_history_of_the_fail, without_head, without_notes]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_fetch_refuses_a_timeline_that_does_not_match_its_signed_head(
    reader: Repo, bare: Repo, pushed: str, attack: Callable[[Repo, str], None]
) -> None:
    told = answer(reader)
    assert told["heads"] == [{"timeline": f"origin/{pushed}", "state": "signed"}]
    before = fetched(reader)
    bare.git("update-ref", f"{HEADS}lab/other-000001", HEADS + pushed)
    attack(bare, pushed)
    told = answer(reader, status=5)
    assert [one["timeline"] for one in told["bad"]] == [f"origin/{pushed}"]
    after = fetched(reader)
    mine = {ref: oid for ref, oid in after.items() if pushed in ref}
    assert mine == {ref: oid for ref, oid in before.items() if pushed in ref}
    assert "refs/envhist/remotes/origin/lab/other-000001" in after
    # With the option, the fetch accepts it.
    told = answer(reader, "--accept-rollback")
    assert told["bad"] == []
    assert fetched(reader) != before


def test_rollback_to_an_earlier_signed_state_is_reported_as_rollback(
    repo: Repo, reader: Repo, bare: Repo, pushed: str
) -> None:
    old = refs(bare, HEADS, NOTES)
    repo.write("four")
    repo.run("envlog", "capture", "four", check=True)
    repo.run("envlog", "push", check=True)
    answer(reader)
    for ref, oid in old.items():
        bare.git("update-ref", ref, oid)
    done = reader.run("envlog", "fetch")
    assert done.status == 128 or "was not fetched" in done.err
    assert "was seen before" in done.err
    # Deleting the timeline on the server first does not hide the rollback.
    for ref in old:
        bare.git("update-ref", "-d", ref)
    answer(reader)
    for ref, oid in old.items():
        bare.git("update-ref", ref, oid)
    assert "was seen before" in reader.run("envlog", "fetch").err


def test_head_of_another_timeline_is_refused(repo: Repo, reader: Repo, bare: Repo, pushed: str) -> None:
    for kind in (HEADS, NOTES):
        bare.git("update-ref", f"{kind}lab/renamed-000001", kind + pushed)
    told = answer(reader, status=5)
    (bad,) = told["bad"]
    assert bad["timeline"] == "origin/lab/renamed-000001"
    assert "signed for another timeline" in bad["why"]


def test_history_without_signed_head_is_reported_as_such(reader: Repo, bare: Repo, pushed: str) -> None:
    without_head(bare, pushed)
    assert answer(reader)["heads"] == [{"timeline": f"origin/{pushed}", "state": "none"}]


def test_head_without_the_key_is_reported_as_unknown(colleague: Repo, bare: Repo, pushed: str) -> None:
    assert answer(colleague)["heads"] == [{"timeline": f"origin/{pushed}", "state": "unknown-key"}]


def test_snapshots_that_plain_git_pushed_later_are_reported(repo: Repo, reader: Repo, pushed: str) -> None:
    answer(reader)
    repo.write("four")
    repo.run("envlog", "capture", "four", check=True)
    repo.git("push", "-q", "origin", f"{HEADS}*:{HEADS}*", f"{NOTES}*:{NOTES}*")
    assert answer(reader)["heads"] == [{"timeline": f"origin/{pushed}", "state": "later"}]
    repo.run("envlog", "push", check=True)
    assert answer(reader)["heads"] == [{"timeline": f"origin/{pushed}", "state": "signed"}]


def test_push_signs_once_for_one_state(repo: Repo, bare: Repo, pushed: str) -> None:
    before = refs(bare, HEADS, NOTES)
    done = repo.run("envlog", "push", "--json", check=True)
    assert [one["status"] for one in json.loads(done.out)["timelines"]] == ["up-to-date"]
    assert refs(bare, HEADS, NOTES) == before


@pytest.fixture
def ssh_key(repo: Repo, tmp_path: Path) -> Path:
    place = tmp_path / "ssh-key"
    words = [require("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "owner", "-f", str(place)]
    subprocess.run(words, check=True)
    repo.git("config", "envhist.sign", "ssh")
    repo.git("config", "user.signingKey", str(place))
    return place


def allow(reader: Repo, key: Path, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("owner@example.com " + key.with_suffix(".pub").read_text())
    reader.git("config", "gpg.ssh.allowedSignersFile", str(allowed))


def test_ssh_signature_is_enough_for_a_colleague_without_the_key(
    repo: Repo, colleague: Repo, bare: Repo, ssh_key: Path, pushed: str, tmp_path: Path
) -> None:
    allow(colleague, ssh_key, tmp_path)
    assert answer(colleague)["heads"] == [{"timeline": f"origin/{pushed}", "state": "signed"}]
    shown = json.loads(colleague.run("envlog", "show", "--json", f"origin/{pushed}", check=True).out)
    assert shown["trusted"] is True
    before = fetched(colleague)
    rewound(bare, pushed)
    assert colleague.run("envlog", "fetch").status in (5, 128)
    assert fetched(colleague) == before


def test_ssh_signature_of_an_unknown_signer_is_not_trusted(
    repo: Repo, colleague: Repo, bare: Repo, ssh_key: Path, pushed: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)]
    subprocess.run(words, check=True)
    allow(colleague, other, tmp_path)
    assert answer(colleague)["heads"] == [{"timeline": f"origin/{pushed}", "state": "unknown-key"}]
    shown = json.loads(colleague.run("envlog", "show", "--json", f"origin/{pushed}", check=True).out)
    assert shown["trusted"] is False


def test_push_without_a_usable_ssh_key_warns_and_sends(repo: Repo, bare: Repo) -> None:
    repo.git("config", "envhist.sign", "ssh")
    repo.run("envlog", "capture", "x", check=True)
    done = repo.run("envlog", "push", "--yes", check=True)
    assert "is not signed: user.signingKey is not set" in done.err
    assert refs(bare, HEADS)


def test_head_is_unchanged_after_writing_and_reading() -> None:
    head = Head(timeline="a/b", number=7, tip="1" * 40, notes="-", key="k", mac="0" * 64)
    assert read_head(write_head(head)) == head
    for broken in (b"", b"x", write_head(head)[:-2], write_head(head) + b"more", b"\xff" * 100):
        with pytest.raises(Damaged):
            read_head(broken)


def test_push_finds_no_secret_in_a_signed_head(repo: Repo, bare: Repo, ssh_key: Path, pushed: str) -> None:
    for number, sign in enumerate(("", "ssh")):
        repo.git("config", "envhist.sign", sign)
        repo.git("config", "user.signingKey", str(ssh_key))
        repo.write("more", str(number))
        repo.run("envlog", "capture", "more", check=True)
        done = repo.run("envlog", "push", check=True)
        assert "secret" not in done.err
        repo.write("more", f"again {number}")
        repo.run("envlog", "capture", "again", check=True)
        assert "secret" not in repo.run("envlog", "push", "--dry-run", check=True).err


def test_push_refuses_a_secret_behind_the_text_of_a_head(repo: Repo, bare: Repo, pushed: str) -> None:
    head = repo.git("cat-file", "blob", f"{NOTES}{pushed}:head")
    note = f"{head}\npassword = Tr0ub4dor\n"
    repo.git("notes", f"--ref={NOTES}{pushed}", "add", "-f", "-F", "-", f"{HEADS}{pushed}~1", input=note)
    done = repo.run("envlog", "push", "--yes")
    assert (done.status, "a secret in its text" in done.err) == (3, True), done.err
