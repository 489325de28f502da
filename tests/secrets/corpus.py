"""A generated corpus of canaries: realistic secrets of every class, in the places where people and programs leave
them.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import io
import lzma
import os
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import zstandard
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.secrets.test_tokens import EXAMPLES, OPTIONAL_END
from tests.support.repository import Repo

LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
PASSWORD = "Wz{}"


@dataclass(frozen=True)
class Canary:
    """A secret: its class, its file, and the bytes to hide."""

    kind: str
    path: str
    content: bytes
    secret: bytes


@dataclass(frozen=True)
class Word:
    """A secret in a text that a user writes: an intent, a note, a value."""

    text: str
    secret: str


def song(place: str, length: int = 24) -> str:
    """Return the secret of a place: letters and digits that occur nowhere else."""
    digest = hashlib.shake_256(place.encode()).digest(length)
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest)


# Contents by path; {} is replaced by the secret. Files whose contents match no pattern are secret by name only.
NAMED = {
    "variables of environments": {
        ".env": "A={}\n", ".env.local": "B={}\n", "app/.env.production": "C={}\n", "docker.env": "D={}\n",
        ".envrc": "export E={}\n", "env.production": "F={}\n", "dotenv": "G={}\n", ".flaskenv": "H={}\n",
        ".envs/.production/.postgres": "I={}\n", ".envs/.local/.django": "J={}\n", ".dev.vars": "K={}\n",
        "env.old": "L={}\n", "cypress.env.json": '{{"a": "{}"}}', "node_modules/p/.env": "M={}\n",
    },
    "copies and files of editors": {
        "#.env#": "A={}\n", "..env.swp": "b0VIM {}\n", ".env (copy)": "B={}\n", ".env.old~": "C={}\n",
        "infra/prod.tfvars~": "d = {}\n", "release.jks.bak": "{}", "secrets-backup.yml": "a: {}\n",
        "credentials (1).json": '{{"a": "{}"}}', "config/.database.yml.swp": "{}", "Copy of release.jks": "{}",
        ".npmrc.save.1": "{}", "id_rsa 2": "{}", "key.properties.orig": "{}", ".#.env": "E={}\n",
        "database (conflicted copy 2026-01-01).yml": "{}", ".env.sync-conflict-20260101-101010-ABCDEFG": "{}",
        "config/database.yml.rpmsave": "{}", "nuget.config.dpkg-old": "{}", "~$passwords.xlsx": "{}",
        "terraform.tfstate.1763461083.backup": "{}",
    },
    "files of secrets and of settings": {
        "config/secrets.yaml": "a: {}\n", "credentials.json": '{{"a": "{}"}}', "config/master.key": "{}",
        "application-secrets.yml": "a: {}\n", "appsettings.Production.json": '{{"a": "{}"}}',
        "local.settings.json": '{{"a": "{}"}}', "local_settings.py": "A = '{}'\n", "config/database.yml": "a: {}\n",
        "k8s/app-secret.yaml": "a: {}\n", "helm/secrets.prod.yaml": "a: {}\n", "secrets/db": "{}",
        "secrets/api/token": "{}", "db_password.txt": "{}", "clientSecret.json": "{}", "wp-config.php": "'{}'",
        "vault.yml": "a: {}\n", "parameters.yml": "a: {}\n", "google-services.json": "{}", "passwords.csv": "a,{}\n",
    },
    "registries, clouds and infrastructure": {
        ".npmrc": "//r/:_authToken={}\n", ".yarnrc.yml": "npmAuthToken: {}\n", "NuGet.config": "<a>{}</a>",
        "gradle.properties": "p={}\n", "android/key.properties": "storePassword={}\n", ".pypirc": "password = {}\n",
        ".netrc": "machine a login b password {}\n", "pip.conf": "{}", ".config/gh/hosts.yml": "oauth_token: {}\n",
        ".aws/credentials": "{}\n", ".docker/config.json": "{}", ".kube/config": "token: {}\n",
        "service-account.json": "{}", "infra/terraform.tfstate": '{{"a": "{}"}}', "infra/tfplan": "PK {}",
        ".vscode/sftp.json": '{{"a": "{}"}}', ".pgpass": "db:5432:a:a:{}\n", ".htpasswd": "a:{}\n",
        "wg0.conf": "{}", "client.ovpn": "{}",
    },
    "histories and sessions": {
        ".bash_history": "mysql -p{}\n", ".viminfo": "| {}\n", ".lesshst": '"{}\n', ".psql_history": "{}\n",
        ".ipython/profile_default/history.sqlite": "SQLite format 3\0{}", ".rediscli_history": "AUTH {}\n",
        "playwright/.auth/user.json": "{}", "storageState.json": "{}", "cookies.txt": "{}", "session.har": "{}",
        ".duckdb_history": "{}\n",
    },
}  # fmt: skip
KEYS = {
    "release.keystore": "{}",
    "vault.kdbx": "{}",
    "deploy/id_ed25519": "{}",
    "putty.ppk": "{}",
    ".ssh/deploy": "{}",
}
SETTINGS = {
    "docker-compose.yml": "  POSTGRES_PASSWORD: {}\n", "config/app.ini": "password = {}\n",
    "config/app.toml": 'secret_key = "{}"\n', "spring.properties": "spring.datasource.password={}\n",
    "deploy/values.yaml": "apiKey: {}\n", "web/settings.json": '{{"jwtSecret": "{}"}}\n',
    "deploy/app.xml": "<password>{}</password>\n", "setup.cfg": "auth_token = {}\n", "run.sh": "export DB_PASS={}\n",
    "inventory": "host ansible_ssh_pass={}\n", "src/client.py": 'API_KEY = "{}"\n',
    "src/api.ts": "const clientSecret = '{}';\n", "k8s/app.yaml": "kind: Secret\ndata:\n  a: {}\n",
    "ntfs.reg.txt": "UTF16 password={}\n",
}  # fmt: skip
PACKAGED = (
    "node_modules/.cache/a.json", "target/debug/build.txt", "vendor/lib/config.php", ".terraform/m/main.tf",
    "src/__pycache__/a.cpython-311.pyc", ".venv/lib/python3.11/site-packages/a.pth", "node_modules/b/index.js",
    ".tox/py/a.txt", "Pods/a.swift", "dist-packages/a.py",
)  # fmt: skip
LARGE = {
    "server.log": lambda text: b"GET /\n" * 20_000 + text,
    "app.bin": lambda text: bytes(200) + text + bytes(200),
    "trace.json": lambda text: b'{"a": 1}\n' * 20_000 + text,
    "big.log": lambda text: b"a line of a log\n" * 600_000 + text,
}


def zipped(text: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", text)
    return written.getvalue()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "old.log.gz": gzip.compress,
    "old.bz2": bz2.compress,
    "old.xz": lzma.compress,
    "cache.zlib": zlib.compress,
    "bundle.zip": zipped,
    "manifest.txt": lambda text: b"data: " + base64.b64encode(b" " + text),
    "mail.eml": base64.encodebytes,
    "twice.b64.txt": lambda text: base64.b64encode(gzip.compress(text)),
    "wide.bin": lambda text: bytes(100) + text.decode().encode("utf-16-le"),
    "script.ps1": lambda text: b"\xff\xfe" + text.decode().encode("utf-16-le"),
}
DATABASES = ("customers.db", "data/app.sqlite3")
DUMPS = {"prod-dump.sql": "-- PostgreSQL database dump\nCOPY users\n{}\n", "backup.sql": "INSERT INTO t VALUES ('{}')",
         "users.csv": "id,phrase\n1,{}\n", "memory.hprof": "JAVA PROFILE 1.0.2\0{}"}  # fmt: skip
FORMLESS = {
    "src/settings.py": "DB_PASS = 'a{}'\n", "notes.md": "the phrase is {}\n", "todo": "remember {}\n",
    "archive.tar.zst": "", "words.txt": "{}\n",
}  # fmt: skip
WORDS = (
    "use ghp_{}abcdefghijk", "PASSWORD={}", "--token={}", "curl -H 'Authorization: Bearer {}'",
    "postgres://app:{}@db/app", '"api_key": "{}"', "sk-ant-api03-{}", "glpat-{}", "SECRET={}", "xoxb-{}",
)  # fmt: skip


def corpus() -> list[Canary]:
    """Return all canaries, each in its own file; `write` creates links and copies."""
    found = [
        _named(kind, path, template) for kind, files in NAMED.items() for path, template in files.items()
    ]
    found += [_named("private keys and their stores", path, template) for path, template in KEYS.items()]
    found += _keys()
    found += [_token(kind) for kind in EXAMPLES]
    found += [_setting(path, template) for path, template in SETTINGS.items()]
    found += [_hidden("installed and derived files", path, lambda text: text) for path in PACKAGED]
    found += [_hidden("large and binary files", path, hide) for path, hide in LARGE.items()]
    found += [_hidden("other forms of text", path, hide) for path, hide in FORMS.items()]
    found += [_named("databases and dumps", path, template) for path, template in DUMPS.items()]
    found += [_formless(path, template) for path, template in FORMLESS.items()]
    return found


def _named(kind: str, path: str, template: str) -> Canary:
    secret = song(path)
    return Canary(kind, path, template.format(secret).encode(), secret.encode())


def _setting(path: str, template: str) -> Canary:
    secret = song(path)[:20] + "7q2W"
    wide = template.startswith("UTF16 ")
    text = template.removeprefix("UTF16 ").format(secret)
    content = b"\xff\xfe" + text.encode("utf-16-le") if wide else text.encode()
    return Canary("settings", path, content, secret.encode("utf-16-le") if wide else secret.encode())


def _keys() -> list[Canary]:
    forms = {
        "device.der": (rsa.generate_private_key(65537, 2048), Encoding.DER, PrivateFormat.PKCS8),
        "signing.bin": (
            ec.generate_private_key(ec.SECP256R1()),
            Encoding.DER,
            PrivateFormat.TraditionalOpenSSL,
        ),
        "tls/server.pem": (
            rsa.generate_private_key(65537, 2048),
            Encoding.PEM,
            PrivateFormat.TraditionalOpenSSL,
        ),
        "deploy/ci.txt": (ec.generate_private_key(ec.SECP256R1()), Encoding.PEM, PrivateFormat.OpenSSH),
    }
    found = []
    for path, (key, encoding, form) in forms.items():
        data = key.private_bytes(encoding, form, NoEncryption())
        # The middle of an OpenSSH key is the public key, so the secret is at the end.
        at = len(data) * 3 // 4 if form is PrivateFormat.OpenSSH else len(data) // 3
        found.append(Canary("private keys and their stores", path, data, data[at : at + 20]))
    return found


def _token(kind: str) -> Canary:
    prefix, secret = EXAMPLES[kind]
    text = f"for {kind} use {prefix}{secret}{OPTIONAL_END.get(kind, '')} here\n"
    return Canary(
        "tokens of vendors", f"notes/{kind}.md", text.encode(), f"{kind} use {prefix}{secret}".encode()
    )


def _hidden(kind: str, path: str, hide: Callable[[bytes], bytes]) -> Canary:
    token = f"ghp_{song(path, 36)}".encode()
    content = hide(b"\n" + token + b"\n")
    return Canary(kind, path, content, token if token in content else content[-40:])


def _formless(path: str, template: str) -> Canary:
    secret = song(path, 10).encode()
    if not template:
        return Canary("secrets without a form", path, zstandard.compress(b"ghp_" + secret * 4), secret)
    return Canary("secrets without a form", path, template.format(secret.decode()).encode(), secret)


def write(repo: Repo) -> list[Canary]:
    """Write the corpus into a repository, with its databases, links and copies. Return every canary in it."""
    found = corpus()
    for one in found:
        repo.write(one.path, one.content)
    for path in DATABASES:
        found.append(Canary("databases and dumps", path, b"", song(path).encode()))
        (repo.path / path).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(repo.path / path)) as connection, connection:
            connection.execute("create table phrases (a)")
            connection.execute("insert into phrases values (?)", (song(path),))
    return found + _twins(repo)


def _twins(repo: Repo) -> list[Canary]:
    kind = "the same as a sealed file"
    originals = {
        name: song(name) for name in (".env.one", ".env.two", "shared/three", "shared/dir/four", ".env.five")
    }
    for path, secret in originals.items():
        repo.write(path, f"phrase {secret}\n")
    os.link(repo.path / ".env.one", repo.path / "hard-link")
    repo.write("plain-copy", f"phrase {originals['.env.two']}\n")
    os.symlink("shared/three", repo.path / ".env.three")
    (repo.path / "linked").mkdir()
    os.symlink("../shared/dir", repo.path / "linked" / "secrets")
    repo.write("node_modules/p/copied", f"phrase {originals['.env.five']}\n")
    seen = {"hard-link": ".env.one", "plain-copy": ".env.two", "shared/three": "shared/three",
            "shared/dir/four": "shared/dir/four", "node_modules/p/copied": ".env.five"}  # fmt: skip
    return [Canary(kind, path, b"", originals[original].encode()) for path, original in seen.items()]


def words() -> list[Word]:
    """Return secrets in texts that users write."""
    return [Word("try " + text.format(song(text)), song(text)) for text in WORDS]
