"""Tell dumps of databases and of memory from other files (pure): by their names, and by how they begin."""

from __future__ import annotations

import re

NAMES = re.compile(
    rb".*\.(?:sql|dump|pgdump|bson|rdb|mdb|accdb|bak)(?:\.(?:gz|bz2|xz|zst|zip))|.*\.(?:dump|pgdump|bson|rdb|hprof|mdmp|dmp|core)"
    rb"|.*(?:dump|backup|export|customers?|users?|prod(?:uction)?)(?:[._-].*)?\.(?:sql|csv|tsv|ndjson|jsonl|parquet|xlsx)"
    rb"(?:\.(?:gz|bz2|xz|zst|zip))?|core(?:\.\d+)?"
)
BEGINNINGS = (
    b"-- PostgreSQL database dump", b"--\n-- PostgreSQL database", b"-- MySQL dump", b"-- MariaDB dump", b"/*M!999999",
    b"-- phpMyAdmin SQL Dump", b"PGDMP", b"REDIS0", b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION", b"JAVA PROFILE",
    b"-- Dump", b"-- pg_dump",
)  # fmt: skip


def is_dump(path: bytes, beginning: bytes) -> bool:
    """Whether a file is a dump, by its path and its first bytes."""
    name = path.rpartition(b"/")[2].lower()
    return beginning.startswith(BEGINNINGS) or NAMES.fullmatch(name) is not None
