"""`git envlog show --versions`: all versions of one file, printed, as JSON, or written into a directory.

The file is followed across renames, as for `why`. Values of a sealed file are masked unless they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.cli.formats import count, format_date
from git_envhist.cli.json_values import SCHEMA, Json, iso_time, path_fields
from git_envhist.cli.refused_arguments import refuse_place
from git_envhist.cli.views.stored_file_json import file_json, mask_file
from git_envhist.disk import cannot_write
from git_envhist.errors import KeyMissing, Refused, UsageError
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.history.why import Subject, SubjectKind, SubjectNotFound
from git_envhist.model import EnvPath, Snapshot, StoredAs
from git_envhist.printable_text import escape, escape_invalid

if TYPE_CHECKING:
    from git_envhist.cli.command import Session

MAX_NAME = 120
"""Bytes of a file's name that the name of an extracted version keeps."""


class FileVersion(NamedTuple):
    """A version of a file: the snapshot that brought it, and its path there."""

    snapshot: Snapshot
    path: EnvPath
    sealed: bool


def print_versions(
    session: Session, revision: str, path: EnvPath, to: str | None, date: str | None, *, reveal: bool
) -> None:
    """Print all versions of a file up to a snapshot, the newest first, or write them into a directory."""
    if to is not None and session.json:
        raise UsageError("--to and --json exclude each other")
    if to is not None and not os.path.isdir(to) and (not to or os.path.lexists(to)):
        raise UsageError(f"not a directory: '{to}'", hint="name another directory: --to <directory>")
    try:
        versions = list(_versions(session, revision, path)) if path else []
    except SubjectNotFound:
        # git's trees contain no empty directory.
        if not os.path.isdir(os.path.join(os.fsencode(session.history.repository.root), path)):
            raise
        versions = []
    if not versions:
        raise UsageError(
            f"a directory has no versions: '{os.fsdecode(path) or '.'}'",
            hint="name a file: git envlog show --versions <path>",
        )
    if to is not None:
        _extract(session, versions, to, reveal=reveal)
    elif session.json:
        session.print_json(_json(session, path, versions, reveal=reveal))
    else:
        _print(session, versions, session.date_style(date), reveal=reveal)


def _versions(session: Session, revision: str, path: EnvPath) -> Iterator[FileVersion]:
    with session.history.origins(revision) as origins:
        subject = Subject(SubjectKind.PATH, os.fsdecode(path))
        for origin in origins.of(subject):
            if origin.path is not None and origins.has_content(origin.snapshot, origin.path):
                is_sealed = origins.stored_as(origin.snapshot, origin.path) is StoredAs.SEALED
                yield FileVersion(origin.snapshot, origin.path, is_sealed)


def _content(session: Session, version: FileVersion, *, reveal: bool) -> bytes | None:
    """Return the bytes of a version, with masked values if it is sealed; None if all of it is secret.

    Raise `KeyMissing` if its key is missing.
    """
    data = session.history.read_file(version.snapshot, version.path)
    return data if reveal or not version.sealed else mask_file(version.path, data)


def _print(session: Session, versions: list[FileVersion], style: str | None, *, reveal: bool) -> None:
    now = session.history.now
    session.page()
    for number, version in enumerate(versions):
        at = version.snapshot.at
        time = printed_time(at, now) if style is None else format_date(at, style, now)
        heading = f"{escape(title(version.snapshot))}  {escape(os.fsdecode(version.path))}"
        if number:
            session.line()
        session.line(
            f"{session.paint('id', version.snapshot.id[:7])}  {session.paint('time', time)}  {heading}"
        )
        try:
            content = _content(session, version, reveal=reveal)
        except KeyMissing:
            session.line("(sealed; key missing)")
            continue
        if content is None:
            session.line("(sealed; print it with --reveal)")
            continue
        session.output.content(content)
        if content and not content.endswith(b"\n"):
            session.output.content(b"\n")


def _json(session: Session, path: EnvPath, versions: list[FileVersion], *, reveal: bool) -> Json:
    return {
        "schema": SCHEMA,
        **path_fields(path),
        "versions": [
            {
                **_file(session, version, reveal=reveal),
                "at": iso_time(version.snapshot.at),
                "title": escape_invalid(title(version.snapshot)),
            }
            for version in versions
        ],
    }


def _file(session: Session, version: FileVersion, *, reveal: bool) -> Json:
    try:
        return file_json(session.history, version.snapshot, version.path, reveal=reveal)
    except KeyMissing:
        return {
            "schema": SCHEMA,
            "id": version.snapshot.id,
            **path_fields(version.path),
            "kind": "file",
            "mode": None,
            "size": None,
            "sealed": True,
            "text": None,
            "omitted": "key",
        }


def _extract(session: Session, versions: list[FileVersion], to: str, *, reveal: bool) -> None:
    """Write each version into a file of its own; the first in the order of names is the oldest."""
    refuse_place(session, to)
    digits = len(str(len(versions)))
    written = 0
    try:
        os.makedirs(to, exist_ok=True)
        for number, version in enumerate(reversed(versions), 1):
            try:
                content = _content(session, version, reveal=reveal)
            except KeyMissing:
                session.line(f"skipped {version.snapshot.id[:7]}: sealed; key missing")
                continue
            if content is None:
                session.line(f"skipped {version.snapshot.id[:7]}: sealed; extract it with --reveal")
                continue
            name = os.fsencode(f"{number:0{digits}}-{version.snapshot.id[:7]}-") + _name(version.path)
            _write(os.path.join(os.fsencode(to), name), content)
            written += 1
    except OSError as error:
        raise cannot_write(error, to) from error
    session.line(f"wrote {count(written, 'version')} to '{escape(to)}'")


def _name(path: EnvPath) -> bytes:
    return path.rpartition(b"/")[2][-MAX_NAME:]


def _write(place: bytes, content: bytes) -> None:
    """Write a new file that only its owner can read, as the version may be secret."""
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Refused(
            f"the file exists: '{os.fsdecode(place)}'", hint="name another directory: --to <directory>"
        ) from None
    with open(descriptor, "wb") as file:
        file.write(content)
