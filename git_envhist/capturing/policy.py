"""How content is to be kept, from the rules that hold in an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from git_envhist.capture.descent import display_path, join
from git_envhist.capture.ignore import path_matcher, without_negation
from git_envhist.capture.policy import ContentPolicy
from git_envhist.capture.seal import keyed_hash, seal
from git_envhist.capture.secrets import SecretRules
from git_envhist.store.keys import Key


def secret_rules(patterns: Sequence[str]) -> SecretRules:
    """The rules with the patterns of `envhist.secret`: the last one that matches a path decides, as in git."""
    negated = [pattern for pattern in patterns if pattern.startswith("!")]
    excluded = path_matcher(without_negation(patterns)) if negated else None
    return SecretRules(path_matcher(patterns), excluded)


def make_policy(job: dict[str, Any]) -> ContentPolicy:
    """How content is to be kept, from what a job says."""
    rules = secret_rules(job["secret"])
    key = Key.of(job["key"]) if job["key"] is not None else None
    encrypted = frozenset(job["encrypted"])

    def is_secret(path: bytes) -> bool:
        return (path in encrypted and not rules.excludes(path)) or rules.by_name(path)

    def names_in(directory: bytes) -> Callable[[bytes], bool]:
        return rules.names_in(directory) if not encrypted else lambda name: is_secret(join(directory, name))

    return ContentPolicy(
        secret_name=is_secret,
        secret_names=names_in,
        scans_content=rules.scans_content,
        secret_content=rules.by_content,
        excluded=rules.excludes,
        fingerprinted=path_matcher(job["fingerprint"]),
        seal=None if key is None else lambda path, data: seal(key, display_path(path), b"file", data),
        keyed_hash=None if key is None else lambda data: keyed_hash(key, data),
        big_file=job["big_file"],
        holds_databases=job["holds_databases"],
    )
