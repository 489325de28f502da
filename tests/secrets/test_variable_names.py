"""Variables of sealed files: parts of values are never taken for names, and names are stored sealed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from zlib import crc32

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from git_envhist.api import EnvHistory
from git_envhist.dotenv import read_assignments
from git_envhist.lazy import replace
from git_envhist.worktree.stat_cache import CachedFacts, StatCache
from tests.retention.test_purge import objects
from tests.support.repository import Repo

SHORTEST = 5
"""The shortest part of a value that is searched for: a shorter one can occur elsewhere by chance."""


def names(text: str) -> list[str]:
    return [name.decode() for name in read_assignments(text.encode())]


def random_value() -> str:
    """Return a value like the output of `openssl rand -base64 64`: a line of 64 characters and the rest."""
    text = base64.b64encode(os.urandom(64)).decode()
    return f"{text[:64]}\n{text[64:]}"


def pem_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


def parts(values: list[str]) -> set[bytes]:
    """Return every line of the values except the armor, also without the padding that looks like an assignment."""
    lines = [line for value in values for line in value.splitlines() if not line.startswith("-")]
    return {line.rstrip("=").encode() for line in lines if len(line.rstrip("=")) >= SHORTEST}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('A="x\nLEAK=1\n"\nB=2', "A B"),
        ("A='x\nLEAK=1\n'\nB=2", "A B"),
        ("A=`x\nLEAK=1\n`\nB=2", "A B"),
        ("A='''x'\nLEAK=1\n'''\nB=2", "A"),
        ('A="x\\"\nLEAK=\n"\nB=2', "A B"),
        ("A=$'it\\'s\nLEAK=1'\nB=2", "A B"),
        ('A="open\nLEAK=1\nB=2', "A"),
        ("A=it's\nB=\"x\nLEAK=\n\"\nC='s\nLEAK2=\n'", "A"),
        ("A=-----BEGIN KEY-----\nLEAK=\n-----END KEY-----\nB=2", "A B"),
        ("-----BEGIN KEY-----\nLEAK=\n-----END KEY-----\nB=2", "B"),
        ("A=1\n-----BEGIN KEY-----\nLEAK=\nB=2", "A"),
        ("A<<EOF\nLEAK=1\nEOF\nB=2", "A B"),
        ("A=$(cat <<EOF\nLEAK=1\nEOF\n)\nB=2", "A B"),
        ('export A="$(cat <<\'EOF\'\n{"a"}\nLEAK=\nEOF\n)"\nB=2', "A B"),
        ("A=$(cat <<EOF\nLEAK=1\n", "A"),
        ("A=(1\nLEAK=2\n)\nB=2", "A B"),
        ("A=x\\\nLEAK=1\nB=2", "A B"),
        ("#A=1\nexport B = 2 # don't\n  declare -x C=3\nD+=4\n", "B C D"),
        ("if [ -f x ]; then\n  export A=1\nfi\nB=\nC=\n", "A B C"),
    ],
)
def test_parser_finds_no_name_in_a_value(text: str, found: str) -> None:
    assert names(text) == found.split()


@pytest.mark.parametrize("quote", ['"', "'", "`", ""])
def test_parser_finds_no_name_in_random_values(quote: str) -> None:
    for _ in range(500):
        value = random_value()
        assert names(f"FIRST=1\nSECRET={quote}{value}{quote}\nLAST=2\n") == ["FIRST", "SECRET", "LAST"], value


@pytest.fixture
def values(repo: Repo) -> list[str]:
    """Return the values of two captured versions of sealed files with 200 random values and 100 keys."""
    texts = [random_value() for _ in range(200)]
    keys = [pem_key() for _ in range(100)]
    for version in (1, 2):
        lines = [f'SECRET_{version}_{number}="{value}"' for number, value in enumerate(texts)]
        lines += [f'KEY_{version}_{number}="{key}"' for number, key in enumerate(keys)]
        repo.write(".env", "\n".join(lines) + "\n")
        repo.write("deploy/prod.env", "".join(keys) + "\n".join(texts))
        repo.run("envlog", "capture", f"version {version}", check=True)
    return texts + keys


def test_no_part_of_a_sealed_value_is_stored_or_shown(repo: Repo, values: list[str]) -> None:
    shown = [
        repo.run("envlog", *words, check=True).out.encode()
        for words in (("--json",), ("--full",), ("--format=%(story)",), ("show", "--json"), ("show",))
    ]
    shown += [repo.run("envdiff", *words, "@~1", "@").out.encode() for words in (("--json",), ("-p",), ())]
    repo.run("envlog", "--html", "page.html", check=True)
    shown.append((repo.path / "page.html").read_bytes())
    stored = b"\0".join(objects(repo.path / ".git").values())
    assert b"SECRET_2_7" in shown[3]
    leaked = [part for part in parts(values) if any(part in text for text in (stored, *shown))]
    assert leaked == []


def test_no_part_of_a_sealed_value_is_given_to_an_agent(repo: Repo, values: list[str]) -> None:
    server = pytest.importorskip("tests.mcp.test_server")
    answers: list[object] = []

    async def ask(session: object) -> None:
        answers.append(await server.answer(session, "log"))
        answers.append(await server.answer(session, "show", revision="@"))
        answers.append(await server.answer(session, "diff", before="@~1", after="@"))

    server.talk(repo, ask)
    told = json.dumps(answers).encode()
    assert b"SECRET_2_7" in told
    assert [part for part in parts(values) if part in told] == []


def test_names_of_variables_are_stored_sealed(repo: Repo) -> None:
    repo.write(".env", "TELLING_NAME=1\n")
    repo.run("envlog", "capture", check=True)
    repo.write(".env", "TELLING_NAME=2\nOTHER_NAME=1\n")
    repo.run("envlog", "capture", check=True)
    stored = b"\0".join(objects(repo.path / ".git").values())
    assert b"_NAME" not in stored
    assert (
        repo.run("envlog", "--format=%(story)", "-1", check=True).out.strip()
        == "~1 file · .env: +1 ~1 variables"
    )
    assert "OTHER_NAME" in repo.run("envlog", "show", check=True).out
    for place in json.loads(repo.run("envlog", "key", "--json", check=True).out)[0]["places"]:
        Path(place).unlink()
    assert "_NAME" not in repo.run("envlog", "show", check=True).out


def test_facts_of_any_probe_are_sealed_when_its_file_is(repo: Repo) -> None:
    repo.write(
        "requirements.txt", "--extra-index-url https://me:hunter2345@pypi.example/simple\nprivate-thing==1\n"
    )
    repo.write("other/requirements.txt", "public-thing==1\n")
    repo.run("envlog", "capture", check=True)
    stored = b"\0".join(objects(repo.path / ".git").values())
    assert b"envhist-facts 1 declared" in stored
    assert stored.count(b"public-thing") > 1
    assert b"private-thing" not in stored


def with_names_in_the_clear(repo: Repo) -> None:
    """Replace the facts of the newest snapshot and its caches by those that earlier versions wrote."""
    repo.write(".env", "A=1\n")
    text = repo.write("facts.txt", "envhist-facts 1 env 1\n.env/LEAKEDpart= set\n")
    repo.run("envlog", "capture", check=True)
    blob = repo.git("hash-object", str(text)).strip()
    (ref,) = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").split()
    rows = repo.git("ls-tree", "-r", ref).splitlines()
    kept = [row for row in rows if not row.endswith(("facts/env.sealed", "facts/env"))]
    tree_index = {**repo.env, "GIT_INDEX_FILE": str(repo.path / ".git" / "old-index")}
    listed = "\n".join([*kept, f"100644 blob {blob}\t.envhist/facts/env"]) + "\n"
    subprocess.run(
        ["git", "update-index", "--index-info"],
        cwd=repo.path,
        env=tree_index,
        input=listed.encode(),
        check=True,
    )
    tree = repo.execute("git", "write-tree", env={"GIT_INDEX_FILE": tree_index["GIT_INDEX_FILE"]}).out.strip()
    message = repo.git("show", "-s", "--format=%B", ref).replace(
        "Env-Story: ", "Env-Story: .env: LEAKEDpart "
    )
    commit = repo.execute("git", "commit-tree", tree, input=message).out.strip()
    repo.git("update-ref", ref, commit)
    text.unlink()
    cache = StatCache(str(repo.path / ".git" / "envhist" / "cache"), crc32)
    head = cache.read_head()
    assert head is not None
    facts = {name: kept for name, kept in head.facts.items() if name != "env.sealed"}
    cache.write(replace(head, base=commit, facts={**facts, "env": CachedFacts(1, "", blob)}), head.shards)


def test_warning_about_names_is_printed_only_by_manual_captures(repo: Repo) -> None:
    with_names_in_the_clear(repo)
    history = EnvHistory.open(str(repo.path), environ=repo.env, one_command=True)
    history.capture("by a program")
    repo.write("app.py", "changed")
    history.capture("by a program, again")
    repo.write("app.py", "changed again")
    assert "--variable-names" in repo.run("envlog", "capture", "mine", check=True).err
    repo.write("app.py", "and again")
    assert "--variable-names" not in repo.run("envlog", "capture", "mine", check=True).err


def test_unsealed_names_are_reported_once_and_purged(repo: Repo) -> None:
    with_names_in_the_clear(repo)
    first = repo.run("envlog", "capture", "first", check=True)
    assert "git envlog purge --variable-names" in first.err
    assert "purge" not in repo.run("envlog", "capture", "second", "--force", check=True).err
    assert b"LEAKEDpart" in b"\0".join(objects(repo.path / ".git").values())
    repo.run("envlog", "drop", "@~1", check=True)
    repo.git("reflog", "expire", "--expire=now", "--all")
    dry = json.loads(repo.run("envlog", "purge", "--variable-names", "--dry-run", "--json", check=True).out)
    assert dry["snapshots"] + dry["in_trash"] > 0
    done = repo.run("envlog", "purge", "--variable-names", "facts.txt", check=True)
    assert "names of variables" in done.out
    repo.git("gc", "-q", "--prune=now")
    assert b"LEAKEDpart" not in b"\0".join(objects(repo.path / ".git").values())
    assert repo.run("envlog", "fsck", check=True)
    assert "0 snapshots" in repo.run("envlog", "purge", "--variable-names", check=True).out
