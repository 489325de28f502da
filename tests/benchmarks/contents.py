"""Contents of the generated environment's files: text and bytecode of this interpreter's library, recut.

Every file consists of parts of real modules with some words replaced, so that no two files are equal while each
compresses like code. The same name and seed give the same bytes under the same interpreter.
"""

from __future__ import annotations

import marshal
import os
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COMPILED = 3_000_000
"""The bytes of source text compiled for the bytecode; more takes time and looks the same."""
MACHINE_CODE = 24_000_000
HEADER = {"js": b"// %s\n", "dts": b"// %s\n", "py": b"# %s\n"}
IGNORED = b"/.venv/\n/node_modules/\n/build/\n.env\n*.sqlite3\n"
WORDS = ((b"self", b"this"), (b"def ", b"function "), (b"None", b"undefined"), (b"import ", b"require "))


@dataclass(frozen=True)
class Pools:
    """The material: source text, bytecode, machine code, the mappings of source maps."""

    text: bytes
    bytecode: bytes
    machine: bytes
    mappings: bytes


@cache
def pools() -> Pools:
    """Return the material, read before workers are forked, so that they share it."""
    modules = [path.read_bytes() for path in _modules()]
    return Pools(b"".join(modules), _compiled(modules), _machine_code(), _mappings())


def content(kind: str, size: int, key: str) -> bytes:
    """Return the bytes of a file of this kind and about this size; `key` is its name and seed."""
    rng = random.Random(key)
    made = _make(kind, size, rng, pools())
    return made[:size] if size else made


def _make(kind: str, size: int, rng: random.Random, pool: Pools) -> bytes:
    if kind == "licence":
        return pool.text[:size]
    if kind == "ignore":
        return IGNORED
    token = b"%016x" % rng.getrandbits(64)
    if kind == "pyc":
        return token + _recut(pool.bytecode, size, rng)
    if kind == "so":
        return b"\x7fELF" + token + _recut(pool.machine, size, rng)
    if kind == "image":
        return b"\x89PNG" + rng.randbytes(size)
    if kind == "map":
        half = _recut(pool.mappings, size // 2, rng)
        return b'{"version":3,"file":"%s.js","mappings":"%s","sourcesContent":["' % (token, half) + _code(
            size, rng, pool
        )
    if kind == "json":
        return b'{\n  "name": "%s",\n  "description": "' % token + _code(size, rng, pool)
    text = _code(size, rng, pool)
    if kind in ("js", "dts"):
        for old, new in WORDS:
            text = text.replace(old, new)
    return HEADER.get(kind, b"%s\n") % token + text


def _code(size: int, rng: random.Random, pool: Pools) -> bytes:
    """Return parts of neighbouring modules, with a frequent word replaced by one of this file's own."""
    return _recut(pool.text, size, rng).replace(b"name", b"n%x" % rng.getrandbits(20))


def _recut(pool: bytes, size: int, rng: random.Random) -> bytes:
    # A file takes its parts from one range of modules, as a real file has one subject; the range is wide, so parts
    # rarely repeat.
    span = min(len(pool) - 1, max(60_000, 3 * size))
    base = rng.randrange(len(pool) - span)
    return b"".join(_stretches(pool, base, span, size, rng))


def _stretches(pool: bytes, base: int, span: int, size: int, rng: random.Random) -> Iterator[bytes]:
    while size > 0:
        start = base + int(rng.random() * span)
        piece = pool[start : start + 500 + int(rng.random() * 4000)]
        size -= len(piece)
        yield piece


def _modules() -> list[Path]:
    library = Path(sysconfig.get_paths()["stdlib"])
    found = [
        path for path in library.rglob("*.py") if not {"test", "tests", "site-packages"} & set(path.parts)
    ]
    return sorted(found)


def _compiled(modules: list[bytes]) -> bytes:
    parts: list[bytes] = []
    left = COMPILED
    for source in modules:
        if left <= 0:
            break
        left -= len(source)
        try:
            parts.append(marshal.dumps(compile(source, "module.py", "exec", dont_inherit=True)))
        except (SyntaxError, ValueError):
            continue
    return b"".join(parts)


def _machine_code() -> bytes:
    places = [Path(sysconfig.get_config_var("DESTSHARED") or "/nonexistent"), Path(os.__file__).parent]
    shared = sorted(path for place in places if place.is_dir() for path in place.glob("*.so"))
    program = Path(os.path.realpath("/proc/self/exe"))
    data = b"".join(path.read_bytes() for path in (*shared, program) if path.is_file())[:MACHINE_CODE]
    return data if len(data) > 1_000_000 else data + _compiled([path.read_bytes() for path in _modules()])


def _mappings() -> bytes:
    rng = random.Random("mappings")
    steps = [
        "AAAA",
        "CAAC",
        "EAAE",
        "GAAG,",
        ";",
        "IAAI",
        "KAAK,",
        "MAAM",
        ",SAAS",
        "UAAU",
        "gBAAgB,",
        ";;",
        "QAAQ",
    ]
    steps += ["".join(rng.choices("ACDEGIKMOQSUWYabcdgkow", k=4)) + "," for _ in range(200)]
    return "".join(rng.choices(steps, k=400_000)).encode("ascii")
