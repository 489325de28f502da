"""Captured files as seen by a probe: whole, or the byte ranges selected at capture time."""

from __future__ import annotations

from git_envhist.probes.base import Parts, ProbedFile, RandomAccessFile


class RecordingSource:
    """A source that records what is read from it."""

    def __init__(self, source: RandomAccessFile) -> None:
        self._source = source
        self._read: dict[int, bytes] = {}
        self.size = source.size

    def read(self, offset: int, length: int) -> bytes:
        data = self._source.read(offset, length)
        if len(data) > len(self._read.get(offset, b"")):
            self._read[offset] = data
        return data

    @property
    def parts(self) -> Parts:
        return tuple(self._read.items())


class CapturedFile:
    """A file that is available whole or in byte ranges."""

    def __init__(self, file: ProbedFile) -> None:
        self._data = file.data
        self._parts = dict(file.parts)
        self.size = file.size if file.data is None else len(file.data)

    def read(self, offset: int, length: int) -> bytes:
        data = self._data
        return data[offset : offset + length] if data is not None else self._parts.get(offset, b"")[:length]
