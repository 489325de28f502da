"""Measure the speed of matching names and searching contents: `python -m tests.secrets.measure_secrets [DIRECTORY]`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from git_envhist.secrets import tokens
from git_envhist.secrets.rules import SecretRules
from git_envhist.secrets.tokens import SCAN_LIMIT

ENOUGH = 60 << 20


def main(top: str) -> None:
    rules = SecretRules()
    names = [os.fsencode(path) for path in walk(top)]
    print(f"names      {len(names)}: {seconds(rules.by_name, names) / len(names) * 1e6:.2f} µs per path")
    texts = list(read_texts(top))
    size = sum(map(len, texts))
    print(f"contents   {len(texts)} files, {size >> 20} MiB")
    print(f"anchors    {size / seconds(tokens.has_anchor, texts) / 1e6:.0f} MB/s")
    print(f"by content {size / seconds(lambda text: rules.by_content(b'file', text), texts) / 1e6:.0f} MB/s")
    print(f"masking    {size / seconds(tokens.mask_tokens, texts) / 1e6:.0f} MB/s")
    found = [text for text in texts if rules.by_content(b"file", text)]
    print(
        f"secret     {len(found)} files: {sorted({kind for text in found for kind in tokens.find_tokens(text)})}"
    )


def walk(top: str) -> Iterator[str]:
    for directory, _, files in os.walk(top):
        for name in files:
            yield os.path.join(directory, name)


def read_texts(top: str) -> Iterator[bytes]:
    size = 0
    for path in walk(top):
        if size < ENOUGH and os.path.isfile(path) and os.path.getsize(path) <= SCAN_LIMIT:
            with open(path, "rb") as file:
                data = file.read()
            if b"\0" not in data:
                size += len(data)
                yield data


def seconds(action: Callable[[bytes], object], values: Iterable[bytes]) -> float:
    start = time.perf_counter()
    for value in values:
        action(value)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.__file__))
