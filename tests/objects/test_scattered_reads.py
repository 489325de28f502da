"""Scattered reads from git-envhist's packs agree with git, for objects of any size and content."""

from __future__ import annotations

import random

import pytest

from git_envhist.objects.object_readers import WIDE, WINDOW, PackReader, Verify
from git_envhist.objects.own_packs import OwnPacks
from tests.support.repository import Repo

CHANCE = random.Random("scattered")
CONTENTS = {
    "empty": b"",
    "text": b"".join(b"a line of %09d\n" % CHANCE.randrange(10**9) for _ in range(60_000)),
    "zeros": bytes(1 << 20),
    "dense": CHANCE.randbytes(3 * WIDE),
    "nearly-dense": bytes(byte & 0x7F for byte in CHANCE.randbytes(2 * WIDE)),
    **{f"{name}-{size}": made for size in (WINDOW - 1, WINDOW, WIDE, WIDE + 1) for name, made in (
        ("letters", bytes(97 + byte % 26 for byte in CHANCE.randbytes(size))),
        ("dense", CHANCE.randbytes(size)),
    )},
}  # fmt: skip


@pytest.fixture
def scattered(repo: Repo) -> PackReader:
    for name, content in CONTENTS.items():
        repo.write(name, content)
    repo.run("envlog", "capture", check=True)
    packs = OwnPacks.open(str(repo.path / ".git/objects/pack"), "sha1")
    return PackReader(packs, "sha1", verify=Verify.DEFLATE)


def test_scattered_reads_agree_with_git(repo: Repo, scattered: PackReader) -> None:
    tree = repo.git(
        "rev-parse",
        "refs/envhist/heads/"
        + repo.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/envhist/heads")
        + "^{tree}",
    )
    for line in repo.git("ls-tree", tree).splitlines():
        words, name = line.split("\t")
        oid = words.split()[2]
        if name in CONTENTS:
            assert scattered.read(bytes.fromhex(oid)) == (b"blob", CONTENTS[name]), name
    assert scattered.read(bytes.fromhex(tree))[0] == b"tree"
    with pytest.raises(KeyError):
        scattered.read(bytes(20))
    scattered.close()
