"""Read data directories of MySQL and MariaDB: version, whether a server was started, databases and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed

PROBE = "mysql"
VERSION_FILES = (b"mariadb_upgrade_info", b"mysql_upgrade_info")
HISTORY = b"mysql_upgrade_history"
VERSION = re.compile(rb"([0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}[0-9A-Za-z.+~-]{0,40})\s*\Z")
SYSTEM = (b"mysql", b"sys", b"performance_schema", b"information_schema", b"#innodb_temp")
TABLES = (b".ibd", b".frm", b".MYI", b".MAI")
SEARCH_INDEX_PREFIXES = (b"FTS_", b"fts_")


def wants(directory: bytes) -> bool:
    return True


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the facts of the top of a data directory, or the tables of one of its databases."""
    if b"ibdata1" in files:
        version = _version(files)
        if version:
            yield _fact(directory, "version", version)
        is_started = any(name.endswith(b".pid") for name in files)
        yield _fact(directory, "server", "started" if is_started else "stopped")
    elif directory and directory.rpartition(b"/")[2] not in SYSTEM:
        for table in sorted({_table(name) for name in files if name.endswith(TABLES)}):
            if table:
                yield _fact(directory, f"table {table.decode('utf-8', 'surrogateescape')}", "")


def _version(files: Files) -> str:
    for name in VERSION_FILES:
        found = VERSION.match(files[name].data or b"") if name in files else None
        if found is not None:
            return found[1].decode("ascii")
    return _last_of_history(files[HISTORY].data or b"") if HISTORY in files else ""


def _last_of_history(data: bytes) -> str:
    try:
        history = json.loads(data)
        version = history["upgrade_history"][-1]["version"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
    return version if isinstance(version, str) and VERSION.match(version.encode("utf-8", "replace")) else ""


def _table(name: bytes) -> bytes:
    """Return the table of a file; a partitioned table has several files."""
    if name.startswith(SEARCH_INDEX_PREFIXES):
        return b""
    return name.rpartition(b".")[0].partition(b"#")[0]


def _fact(directory: bytes, name: str, value: str) -> Fact:
    place = directory.decode("utf-8", "surrogateescape")
    return Fact(PROBE, f"{place}/{name}" if place else name, value, EnvPath(directory))
