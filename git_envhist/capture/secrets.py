"""Say which files are secret: by their names, by what the user configured, and by what their content gives away."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.capture.descent import join
from git_envhist.capture.tokens import MASK, SCAN_LIMIT, find_tokens, mask_tokens

__all__ = ["SCAN_LIMIT", "SecretRules", "find_tokens", "mask_tokens", "scans_content"]

BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
Matches = Callable[[bytes], bool]


def scans_content(directory: bytes) -> bool:
    """Whether the files right in a directory are to be searched for tokens; asked once for each directory."""
    from git_envhist.capture.secretnames import (
        is_package_directory,
    )  # loaded late: most captures read no file

    return not is_package_directory(directory)


class SecretRules:
    """The rules of one environment: the built-in ones, and what `envhist.secret` and encrypting filters add."""

    __slots__ = ("_excluded", "_extra", "_named")

    def __init__(self, extra: Matches | None = None, excluded: Matches | None = None) -> None:
        self._extra = extra
        self._excluded = excluded
        self._named: Matches | None = None

    def by_name(self, path: bytes) -> bool:
        """Whether the file at a path is secret whatever stands in it."""
        named = self._named or self._load()
        if self._extra is None and self._excluded is None:
            return named(path)
        if self.excludes(path):
            return False
        return named(path) or (self._extra is not None and self._extra(path))

    def names_in(self, directory: bytes) -> Matches:
        """Return a test for the names of the files right in a directory."""
        if self._extra is not None or self._excluded is not None:
            return lambda name: self.by_name(join(directory, name))
        from git_envhist.capture.secretnames import (
            secret_names_in,  # loaded late: most captures judge no new name
        )

        return secret_names_in(directory)

    def excludes(self, path: bytes) -> bool:
        """Whether the user said that the file at a path is not secret (`envhist.secret = !<pattern>`)."""
        return self._excluded is not None and self._excluded(path)

    def scans_content(self, directory: bytes) -> bool:
        """Whether the files right in a directory are to be searched for tokens; asked once for each directory."""
        return scans_content(directory)

    def by_content(self, path: bytes, data: bytes) -> bool:
        """Whether the file at a path is secret for what stands in it."""
        return _gives_away(path, data) and not self.excludes(path)

    def _load(self) -> Matches:
        from git_envhist.capture.secretnames import (
            is_secret_name,
        )  # loaded late: most captures judge no new name

        self._named = is_secret_name
        return is_secret_name


def masked_program(path: bytes, data: bytes) -> bytes | None:
    """Return the text of a sealed program or document with `***` for its secrets; None where it cannot be masked.

    Its owner reads a diff of it. A file that is secret by its name, or not text, is shown by `--reveal` alone.
    """
    from git_envhist.capture.secretnames import (
        is_program_name,
        is_secret_name,
    )  # loaded late: a patch shows few
    from git_envhist.capture.settingvalues import mask_secret_literals  # loaded late: likewise

    if not is_program_name(path) or is_secret_name(path) or b"\0" in data or not _gives_away(path, data):
        return None
    masked = mask_secret_literals(mask_tokens(data), MASK)
    return None if _gives_away(path, masked) else masked


def _gives_away(path: bytes, data: bytes) -> bool:
    from git_envhist.capture.keymaterial import is_key_material  # loaded late: most captures read no file
    from git_envhist.capture.secretnames import is_key_file, is_program_name  # loaded late: likewise
    from git_envhist.capture.settingvalues import holds_secret_setting  # loaded late: likewise

    if is_key_material(data) or (b"PRIVATE KEY" in data and is_key_file(path)):
        return True
    if len(data) > SCAN_LIMIT:
        return False
    encoding = BOMS.get(data[:2])
    if encoding is not None:
        data = data.decode(encoding, "replace").encode()
    # With a NUL byte it is no text: compressed, compiled, a database. Those are no secret class.
    if b"\0" in data:
        return False
    return bool(find_tokens(data)) or holds_secret_setting(data, program=is_program_name(path))
