"""Canaries in every class of secret: a push of everything contains none of them, and nothing to test guesses with."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.repository import Repo

TOKEN = "ghp_" + "aB3dE5gH7jK9mN2pQ4rS6tU8vW0xY1zC3eF5"
FILES = {
    ".env.local": "API_KEY=canary-in-env",
    "prod.env": "DB=canary-in-prod",
    "id_ed25519": "canary-in-key",
    ".npmrc": "//registry/:_authToken=canary-in-npmrc",
    ".pypirc": "password = canary-in-pypirc",
    ".netrc": "machine a login b password canary-in-netrc",
    ".kube/config": "token: canary-in-kubeconfig",
    ".aws/credentials": "aws_secret_access_key = canary-in-aws",
    "terraform.tfstate": '{"password": "canary-in-state"}',
    "node_modules/pkg/.env": "A=canary-in-package",
    "tls.key": "-----BEGIN EC PRIVATE KEY-----\ncanary-in-pem\n-----END EC PRIVATE KEY-----\n",
    "notes.txt": f"the token is {TOKEN}\n",
    "settings.py": "URL = 'postgres://app:canary-in-url@db/app'\n",
    "mine.txt": "canary-of-the-user",
}


@pytest.fixture
def captured(repo: Repo) -> Repo:
    for path, content in FILES.items():
        repo.write(path, content)
    # Staged but not in the working tree: stored next to the files, and secret by content or name.
    for path in ("staged.py", ".env.staged"):
        repo.write(path, f"canary = '{TOKEN}'")
        repo.git("add", path)
        repo.write(path, "harmless")
    repo.git("add", "-N", "notes.txt")
    attached = repo.write("../talk.txt", "canary-in-attachment")
    repo.git("config", "--add", "envhist.secret", "/mine.txt")
    repo.run(
        "envlog", "capture", f"use {TOKEN} and PASSWORD=canary-in-intent", "--meta", f"k={TOKEN}", "--attach",
        str(attached), check=True,
    )  # fmt: skip
    repo.run("envlog", "note", "-m", f"tried --token=canary-in-note and {TOKEN}", check=True)
    return repo


def everything_pushed(repo: Repo) -> bytes:
    """Return all objects and refs that a mirror of the repository gets, as one long text."""
    repo.git("clone", "-q", "--mirror", f"file://{repo.path}", "../mirror.git")
    at = ("--git-dir", "../mirror.git")
    listed = repo.git(*at, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    content = repo.run_git(*at, "cat-file", "--batch", input=listed + "\n").stdout
    return content + repo.git(*at, "for-each-ref").encode()


def test_push_contains_no_canary(captured: Repo) -> None:
    pushed = everything_pushed(captured)
    assert pushed.count(b"envhist-sealed 1\n") == len(FILES) + len(
        ("staged.py", "its twin in the tree", ".env.staged", "the other .env.staged", "attachment", "facts")
    )
    assert b"canary" not in pushed
    assert TOKEN.encode() not in pushed


def test_push_contains_no_hash_of_a_secret(captured: Repo) -> None:
    pushed = everything_pushed(captured)
    for content in FILES.values():
        plain = content.encode()
        for form in (plain, b"blob %d\0" % len(plain) + plain):
            for algorithm in ("md5", "sha1", "sha256", "sha512"):
                digest = hashlib.new(algorithm, form)
                assert digest.digest()[:10] not in pushed
                assert digest.hexdigest()[:20].encode() not in pushed


def test_push_contains_no_key(captured: Repo) -> None:
    pushed = everything_pushed(captured)
    (key_file,) = (captured.path / ".git/envhist/keys").glob("?" * 32)
    secret = key_file.read_text().splitlines()[1]
    assert secret.encode() not in pushed
    assert bytes.fromhex(secret) not in pushed


def test_owner_can_read_all_secrets(captured: Repo) -> None:
    for path, content in FILES.items():
        assert captured.run("envlog", "show", "@", "--", path, check=True).out == content
