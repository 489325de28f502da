"""Decide which packages of the machine an environment uses: its lists name them, or its packages need them (pure)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from git_envhist.lazy import replace
from git_envhist.model import FactChange, Role
from git_envhist.probes import runtimes

LISTS = (
    *("Aptfile", "apt.txt", "packages.txt", "apt-packages.txt", "apk.txt", "Brewfile"),
    *("Dockerfile", "Containerfile", ".devcontainer/Dockerfile", ".devcontainer/devcontainer.json"),
    *("compose.yaml", "compose.yml", "docker-compose.yml", "Vagrantfile", "shell.nix", "flake.nix"),
)
"""Files at the top of an environment that name packages of a machine."""
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.@_-]*")
RUNTIMES = runtimes()
CLIENTS = {
    r"psycopg|asyncpg|pg\Z|pg-|postgres|pgvector|sqlalchemy-redshift": RUNTIMES["postgres"],
    r"mysql|mariadb|pymysql|aiomysql": RUNTIMES["mysql"],
    r"redis|ioredis|valkey|celery|bullmq": RUNTIMES["redis"],
    r"mongo|pymongo|motor\Z": r"mongodb|mongo",
    r"pillow|sharp\Z": r"libjpeg|libvips|libwebp|libtiff|zlib1g",
    r"lxml|libxml": r"libxml2|libxslt",
    r"cryptography|pyopenssl": r"openssl|libssl",
    r"playwright|puppeteer|selenium": r"chromium|google-chrome|firefox",
    r"opencv|ffmpeg": r"ffmpeg|libav",
}
"""Packages of the machine that installed packages of these names need."""
ENDS = r"(?:[-0-9.@:+]|\Z)"


def assign_machine_roles(
    changes: Iterable[FactChange], lists: Iterable[str], installed: Mapping[str, Collection[str]]
) -> tuple[FactChange, ...]:
    """Return the changes of the machine's packages; those that the environment does not use are transitive.

    `lists`: the texts of `LISTS`; `installed`: the names of installed packages, by probe.
    """
    named = {word for text in lists for word in WORD.findall(text)}
    patterns = [RUNTIMES[probe] for probe, names in installed.items() if probe in RUNTIMES and names]
    names = [name for found in installed.values() for name in found]
    patterns += [
        needed for client, needed in CLIENTS.items() if any(re.match(client, name) for name in names)
    ]
    is_needed = re.compile(rf"(?:{'|'.join(patterns)}){ENDS}") if patterns else None

    def is_used(change: FactChange) -> bool:
        return change.key in named or (is_needed is not None and is_needed.match(change.key) is not None)

    return tuple(
        replace(one, role=Role.DIRECT if is_used(one) and not one.auto else Role.TRANSITIVE)
        for one in changes
    )
