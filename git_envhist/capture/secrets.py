"""Says which files are secret: by their names, by what the user configured, and by unmistakable tokens in them."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.capture.secretnames import is_key_file, is_package_directory, is_secret_name
from git_envhist.capture.tokens import SCAN_LIMIT, find_tokens, mask_tokens

__all__ = ["SCAN_LIMIT", "SecretRules", "find_tokens", "mask_tokens", "scans_content"]


def scans_content(directory: bytes) -> bool:
    """Whether the files right in a directory are to be searched for tokens; asked once for each directory."""
    return not is_package_directory(directory)


class SecretRules:
    """The rules of one environment: the built-in ones, and what `envhist.secret` and encrypting filters add."""

    __slots__ = ("_extra",)

    def __init__(self, extra: Callable[[bytes], bool] | None = None) -> None:
        self._extra = extra

    def by_name(self, path: bytes) -> bool:
        """Whether the file at a path is secret whatever stands in it."""
        return is_secret_name(path) or (self._extra is not None and self._extra(path))

    def scans_content(self, directory: bytes) -> bool:
        """Whether the files right in a directory are to be searched for tokens; asked once for each directory."""
        return scans_content(directory)

    def by_content(self, path: bytes, data: bytes) -> bool:
        """Whether the file at a path is secret for what stands in it."""
        if is_key_file(path) and b"PRIVATE KEY" in data:
            return True
        # With a NUL byte it is no text: compressed, compiled, a database. Those are no secret class.
        return len(data) <= SCAN_LIMIT and b"\0" not in data and bool(find_tokens(data))
