"""How content is to be kept, from the rules that hold in an environment."""

from __future__ import annotations

from typing import Any

from git_envhist.capture.descent import shown_path
from git_envhist.capture.ignore import path_matcher
from git_envhist.capture.policy import Policy
from git_envhist.capture.seal import keyed_hash, seal
from git_envhist.capture.secrets import SecretRules
from git_envhist.store.keys import Key


def make_policy(job: dict[str, Any]) -> Policy:
    """How content is to be kept, from what a job says."""
    rules = SecretRules(path_matcher(job["secret"]))
    key = Key.of(job["key"]) if job["key"] is not None else None
    encrypted = frozenset(job["encrypted"])
    return Policy(
        secret_name=lambda path: path in encrypted or rules.by_name(path),
        scans_content=rules.scans_content,
        secret_content=rules.by_content,
        fingerprinted=path_matcher(job["fingerprint"]),
        seal=None if key is None else lambda path, data: seal(key, shown_path(path), b"file", data),
        keyed_hash=None if key is None else lambda data: keyed_hash(key, data),
        big_file=job["big_file"],
        holds_databases=job["holds_databases"],
    )
