"""Make and check SSH signatures with `ssh-keygen`, as git does for commits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from tempfile import TemporaryDirectory

from git_envhist.errors import EnvhistError
from git_envhist.git.process import GitResult
from git_envhist.lazy import dataclass

TIMEOUT = 60.0
"""Seconds, long enough to touch a security key or type a passphrase."""
LITERAL = ("key::", "ssh-", "ecdsa-", "sk-")
"""Prefixes of a public key given instead of a file name; the agent has its private half."""


class CannotSign(EnvhistError):
    """`ssh-keygen` made no signature."""

    code = "cannot-sign"
    usual_hint = "user.signingKey names an SSH key, or a public key that the agent has; see git-config(1)"


@dataclass(frozen=True, slots=True)
class SshSettings:
    """The part of git's configuration that concerns SSH signatures."""

    signs: bool = False
    """`envhist.sign=ssh`"""
    key: str | None = None
    allowed: str | None = None
    """The file of allowed signers."""
    revoked: str | None = None

    @classmethod
    def of(cls, config: Iterable[tuple[str, str | None]]) -> SshSettings:
        values = dict(config)
        return cls(
            (values.get("envhist.sign") or "").strip().lower() == "ssh",
            values.get("user.signingkey"),
            values.get("gpg.ssh.allowedsignersfile"),
            values.get("gpg.ssh.revocationfile"),
        )


def ssh_sign(text: bytes, namespace: str, settings: SshSettings, environ: Mapping[str, str]) -> str:
    """Return the armored signature of a text. Raise `CannotSign` if `ssh-keygen` fails."""
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
    """Return the allowed signer that signed a text, or None."""
    allowed = os.path.expanduser(settings.allowed or "")
    if not allowed or not os.path.isfile(allowed):
        return None
    with TemporaryDirectory(prefix="git-envhist-") as place:
        file = os.path.join(place, "head.sig")
        with open(file, "w", encoding="ascii") as written:
            written.write(signature)
        listed = _run(["-Y", "find-principals", "-f", allowed, "-s", file], environ)
        revoked = ["-r", os.path.expanduser(settings.revoked)] if settings.revoked else []
        for principal in os.fsdecode(listed.out).splitlines() if listed.status == 0 else ():
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
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return GitResult(127, b"", os.fsencode(f"ssh-keygen cannot be run: {error}"))
    return GitResult(done.returncode, done.stdout, done.stderr)
