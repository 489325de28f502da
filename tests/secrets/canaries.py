"""Forty canaries: a secret in every class, by name and by content, where files and where words are kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from tests.support.repository import Repo

LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
ROUNDS = 3

# Path -> what stands in it; {} is where the canary sings, and each path has one of its own.
BY_NAME = {
    ".env.local": "API_KEY={}\n",
    "deploy/prod.env": "DB={}",
    ".envrc": "export A={}\n",
    "config/secrets.yaml": "a: {}\n",
    "credentials.json": '{{"a": "{}"}}',
    ".npmrc": "//registry.example/:_authToken={}\n",
    ".pypirc": "password = {}\n",
    ".netrc": "machine a login b password {}\n",
    ".config/gh/hosts.yml": "oauth_token: {}\n",
    ".aws/credentials": "aws_secret_access_key = {}\n",
    ".docker/config.json": '{{"auths": {{"a": {{"auth": "{}"}}}}}}',
    ".kube/config": "token: {}\n",
    "service-account.json": '{{"k": "{}"}}',
    "infra/terraform.tfstate": '{{"password": "{}"}}',
    "infra/prod.tfvars": 'password = "{}"\n',
    ".pgpass": "db:5432:app:app:{}\n",
    ".htpasswd": "app:{}\n",
    "keys/id_ed25519": "{}\n",
    "keys/store.jks": "\xfe\xed\xfe\xed\0{}",
    ".bash_history": "mysql -p{}\n",
    "node_modules/package/.env": "A={}\n",
    "mine/private.txt": "{}",
}
BY_CONTENT = {
    "notes.txt": "the token is ghp_{}\n",
    "ci.yml": "token: glpat-{}\n",
    "src/settings.py": "URL = 'postgres://app:{}@db/app'\n",
    "src/pay.py": "KEY = 'sk_live_{}'\n",
    "docs/setup.md": "use sk-ant-api03-{}\n",
    "tls.pem": "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
    "deploy.yaml": "key: |\n  -----BEGIN PRIVATE KEY-----\n  {}\n  -----END PRIVATE KEY-----\n",
    ".vscode/launch.json": '{{"SLACK": "xoxb-{}"}}',
}
NESTED = {
    "vendored/.git/config": '[remote "origin"]\n\turl = https://me:{}@example.com/a.git\n',
    "vendored/.env": "A={}\n",
    "node_modules/fork/.git/config": '[http "https://example.com/"]\n\textraheader = AUTHORIZATION: basic {}\n',
}
ROOT = {"etc/app.cfg": "token = hf_{}\n", "etc/.env": "A={}\n"}
STAGED = {"staged.py": "t = 'npm_{}'\n", ".env.staged": "A={}\n"}
WORDS = ("intent", "meta", "external-id", "note")
ATTACHED = "attached"

FILES = {**BY_NAME, **BY_CONTENT, **NESTED}
EVERYWHERE = (*FILES, *ROOT, *STAGED, *WORDS, ATTACHED)


@cache
def canary(place: str, number: int) -> str:
    """The secret of one place in one round: 40 letters that nothing else spells."""
    digest = hashlib.sha512(f"{place} {number}".encode()).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:40])


def every_canary() -> list[str]:
    return [canary(place, number) for place in EVERYWHERE for number in range(ROUNDS)]


def content(template: str, place: str, number: int) -> bytes:
    return template.format(canary(place, number)).encode("latin-1")


def every_content() -> list[bytes]:
    """All bytes of all secret files."""
    files = {**FILES, **ROOT, **STAGED}
    return [content(files[place], place, number) for place in files for number in range(ROUNDS)]


@dataclass(frozen=True)
class Captured:
    """A repository with three moments full of secrets, and what git itself stored when they were staged."""

    repo: Repo
    snapshots: tuple[str, ...]
    staged: frozenset[str]


def take_canaries(repo: Repo) -> Captured:
    """Three captures, each secret another one each time."""
    repo.git("config", "--add", "envhist.secret", "/mine/")
    repo.git("config", "envhist.root.etc", str(repo.path.parent / "etc"))
    for nested in ("vendored", "node_modules/fork"):
        (repo.path / nested).mkdir(parents=True)
        repo.git("init", "-q", "--template=", nested)
    snapshots, staged = [], []
    for number in range(ROUNDS):
        write_round(repo, number)
        staged += stage(repo, number)
        snapshots.append(capture_round(repo, number))
    return Captured(repo, tuple(snapshots), frozenset(staged))


def write_round(repo: Repo, number: int) -> None:
    for place, template in FILES.items():
        repo.write(place, content(template, place, number))
    for place, template in ROOT.items():
        repo.write(f"../{place}", content(template, place, number))


def stage(repo: Repo, number: int) -> list[str]:
    """Stage what the working tree holds no more; the ids of the blobs that git wrote for it."""
    written = []
    for place, template in STAGED.items():
        repo.write(place, content(template, place, number))
        repo.git("add", "-f", place)
        written.append(repo.git("rev-parse", f":{place}"))
        repo.write(place, "harmless")
    return written


def capture_round(repo: Repo, number: int) -> str:
    sung = {word: canary(word, number) for word in WORDS}
    attached = repo.write(f"../talk{number}.txt", canary(ATTACHED, number))
    done = repo.run(
        "envlog", "capture", "--porcelain", f"use ghp_{sung['intent']} and PASSWORD={sung['intent']}",
        "--meta", f"k=glpat-{sung['meta']}", "--external-id", f"https://me:{sung['external-id']}@host/1",
        "--attach", str(attached), check=True,
    )  # fmt: skip
    repo.run("envlog", "note", "-m", f"tried --token={sung['note']} and hf_{sung['note']}", check=True)
    return done.out.strip()
