"""Signatures by SSH keys, made and checked by `ssh-keygen` as git does it for commits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from tempfile import TemporaryDirectory

from git_envhist.errors import EnvhistError
from git_envhist.git.process import GitResult
from git_envhist.lazy import dataclass

PATIENCE = 60.0
"""Seconds, for who has to touch a key or type a passphrase."""
LITERAL = ("key::", "ssh-", "ecdsa-", "sk-")
"""A public key instead of the name of a file: its private half is with the agent."""


class CannotSign(EnvhistError):
    """`ssh-keygen` made no signature."""

    code = "cannot-sign"
    usual_hint = "user.signingKey names an SSH key, or a public key that the agent has; see git-config(1)"


@dataclass(frozen=True, slots=True)
class SshSettings:
    """The part of git's configuration that is about SSH signatures."""

    signs: bool = False
    """`envhist.sign=ssh`"""
    key: str | None = None
    allowed: str | None = None
    """The file of those whose signatures count."""
    revoked: str | None = None

    @classmethod
    def of(cls, config: Iterable[tuple[str, str | None]]) -> SshSettings:
        told = dict(config)
        return cls(
            (told.get("envhist.sign") or "").strip().lower() == "ssh",
            told.get("user.signingkey"),
            told.get("gpg.ssh.allowedsignersfile"),
            told.get("gpg.ssh.revocationfile"),
        )


def ssh_sign(text: bytes, namespace: str, settings: SshSettings, environ: Mapping[str, str]) -> str:
    """Return the armoured signature of a text; `CannotSign` if there is none."""
    if not settings.key:
        raise CannotSign("user.signingKey is not set")
    with TemporaryDirectory(prefix="git-envhist-") as place:
        key, options = _key_file(settings.key, place)
        data = os.path.join(place, "head")
        with open(data, "wb") as file:
            file.write(text)
        done = _run(["-Y", "sign", "-n", namespace, "-f", key, *options, data], environ)
        try:
            with open(data + ".sig", encoding="ascii") as file:
                return file.read()
        except (OSError, ValueError) as error:
            raise CannotSign(f"ssh-keygen made no signature: {done.complaint}") from error


def ssh_signer(
    text: bytes, signature: str, namespace: str, settings: SshSettings, environ: Mapping[str, str]
) -> str | None:
    """Return the allowed signer that signed a text; None if it was none of them."""
    allowed = os.path.expanduser(settings.allowed or "")
    if not allowed or not os.path.isfile(allowed):
        return None
    with TemporaryDirectory(prefix="git-envhist-") as place:
        file = os.path.join(place, "head.sig")
        with open(file, "w", encoding="ascii") as written:
            written.write(signature)
        told = _run(["-Y", "find-principals", "-f", allowed, "-s", file], environ)
        revoked = ["-r", os.path.expanduser(settings.revoked)] if settings.revoked else []
        for principal in os.fsdecode(told.out).splitlines() if told.status == 0 else ():
            words = ["-Y", "verify", "-f", allowed, "-I", principal, "-n", namespace, "-s", file, *revoked]
            if _run(words, environ, text).status == 0:
                return principal
    return None


def _key_file(key: str, place: str) -> tuple[str, list[str]]:
    if not key.startswith(LITERAL):
        return os.path.expanduser(key), []
    path = os.path.join(place, "key.pub")
    with open(path, "w", encoding="utf-8") as file:
        file.write(key.removeprefix("key::") + "\n")
    return path, ["-U"]


def _run(words: list[str], environ: Mapping[str, str], stdin: bytes = b"") -> GitResult:
    import subprocess  # loaded late: most heads have no such signature

    try:
        done = subprocess.run(
            ["ssh-keygen", *words],
            env=dict(environ),
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return GitResult(127, b"", os.fsencode(f"ssh-keygen cannot be run: {error}"))
    return GitResult(done.returncode, done.stdout, done.stderr)
