"""Forty canaries: a secret of every class, by name and by content, in files and in text."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from tests.integrations.agents.test_called import Working
from tests.support.repository import Repo

LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
ROUNDS = 3

# Contents by path; {} is replaced by the canary, which differs for each path.
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
COMMANDS = ("verify command", "run command", "run intent", "listener", "service command")
"""Secrets in the arguments of a check, a run and a server."""
SAID = ("verify output", "run output", "service dump", "transcript")
"""Secrets in their output and in an agent's transcript, which no pattern recognizes."""
PROMPT = "prompt"

FILES = {**BY_NAME, **BY_CONTENT, **NESTED}
EVERYWHERE = (*FILES, *ROOT, *STAGED, *WORDS, ATTACHED, *COMMANDS, *SAID, PROMPT)
LISTENS = """
import socket, time
door = socket.create_server(("127.0.0.1", 0))
print("up", flush=True)
time.sleep(1000)
"""


@cache
def canary(place: str, number: int) -> str:
    """Return the secret of a place in a round: 40 letters that occur nowhere else."""
    digest = hashlib.sha512(f"{place} {number}".encode()).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:40])


def every_canary(*but: str) -> list[str]:
    return [canary(place, number) for place in EVERYWHERE if place not in but for number in range(ROUNDS)]


def content(template: str, place: str, number: int) -> bytes:
    return template.format(canary(place, number)).encode("latin-1")


def every_content() -> list[bytes]:
    """Return all bytes of all secret files."""
    files = {**FILES, **ROOT, **STAGED}
    return [content(files[place], place, number) for place in files for number in range(ROUNDS)]


@dataclass(frozen=True)
class Captured:
    """Create a repository with three snapshots full of secrets; return the objects that git itself stored when
    staging.
    """

    repo: Repo
    snapshots: tuple[str, ...]
    staged: frozenset[str]


def take_canaries(repo: Repo) -> Captured:
    """Take three captures, each with different secrets."""
    repo.git("config", "--add", "envhist.secret", "/mine/")
    repo.git("config", "envhist.root.etc", str(repo.path.parent / "etc"))
    for nested in ("vendored", "node_modules/fork"):
        (repo.path / nested).mkdir(parents=True)
        repo.git("init", "-q", "--template=", nested)
    agent = Working(repo, repo.path.parent / "transcript.jsonl", "claude-code")
    snapshots, staged = [], []
    for number in range(ROUNDS):
        work(repo, agent, number)
        write_round(repo, number)
        staged += stage(repo, number)
        snapshots.append(capture_round(repo, number))
    return Captured(repo, tuple(snapshots), frozenset(staged))


def work(repo: Repo, agent: Working, number: int) -> None:
    """Run a command, report to an agent, and configure a service."""
    sung = {word: canary(word, number) for word in (*COMMANDS, *SAID, PROMPT)}
    said = {word: repo.write(f"../{word.replace(' ', '-')}{number}", sung[word]) for word in SAID}
    dump = f"cat {said['service dump']}; : postgres://me:{sung['service command']}@db/app"
    repo.git("config", "envhist.service.db.dump", dump)
    command = f"cat {said['run output']}; : --token={sung['run command']}"
    intent = f"with PASSWORD={sung['run intent']}"
    repo.run("envlog", "run", "-m", intent, "--", "sh", "-c", command, check=True)
    agent.transcript.write_text(f'{{"type":"user","version":"2.1.326","text":"{sung["transcript"]}"}}\n')
    before = len(repo.run("envlog", "--json=lines", "--no-fold", check=True).out.splitlines())
    repo.write("worked-on", str(number))
    agent.call(
        "claude-code",
        "prompt",
        session_id=f"c-{number}",
        prompt=f"use ghp_{sung['prompt']} and PASSWORD={sung['prompt']}",
    )
    agent.call("claude-code", "before", session_id=f"c-{number}")
    agent.snapshots(before + 1)


@contextmanager
def listening(repo: Repo, password: str) -> Iterator[None]:
    """Start a server in the environment with its password on the command line."""
    words = [sys.executable, "-c", LISTENS, f"--password={password}"]
    with subprocess.Popen(words, cwd=repo.path, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            server.kill()


def write_round(repo: Repo, number: int) -> None:
    for place, template in FILES.items():
        repo.write(place, content(template, place, number))
    for place, template in ROOT.items():
        repo.write(f"../{place}", content(template, place, number))


def stage(repo: Repo, number: int) -> list[str]:
    """Stage files that no longer exist; return the ids of the blobs that git wrote."""
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
    check = f"cat ../verify-output{number}; : --token={canary('verify command', number)}"
    with listening(repo, canary("listener", number)):
        done = repo.run(
            "envlog", "capture", "--porcelain", f"use ghp_{sung['intent']} and PASSWORD={sung['intent']}",
            "--meta", f"k=glpat-{sung['meta']}", "--external-id", f"https://me:{sung['external-id']}@host/1",
            "--attach", str(attached), "--verify", check, check=True,
        )  # fmt: skip
    repo.run("envlog", "note", "-m", f"tried --token={sung['note']} and hf_{sung['note']}", check=True)
    return done.out.strip()
