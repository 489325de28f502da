"""The probes: what can be told of an environment and its machine beyond files. docs/facts.md: how to add one.

A probe is one leaf (a module beside this one) and one line here. The line says what wakes it, so that a leaf is not
even loaded where nothing of its concern changed. Their order is that of the rows of a story.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from git_envhist.facts.probe import (
    DumpProbe,
    MachineLeaf,
    MachineProbe,
    PartsLeaf,
    PlaceLeaf,
    PlaceProbe,
    SignLeaf,
    SignProbe,
    TreeLeaf,
    TreeProbe,
)

PACKAGES, SERVICES, DATABASES, VARIABLES, TOOLS = "packages", "services", "databases", "env", "tools"
"""The classes of facts, as `--only` names them."""

PROBES: dict[str, TreeProbe | MachineProbe | PlaceProbe | SignProbe | DumpProbe] = {
    "pip": TreeProbe(
        "python",
        PACKAGES,
        2,
        reads=(b"METADATA", b"PKG-INFO", b"INSTALLER", b"direct_url.json", b"pyvenv.cfg", b"*.egg-info"),
        sees=(b"REQUESTED", b"*.egg-link", b"site-packages/*.egg", b"dist-packages/*.egg"),
    ),
    "npm": TreeProbe(
        "node", PACKAGES, 2, reads=(b"package.json", b".pnp.cjs", b".pnp.js", b".pnp.data.json")
    ),
    "gem": TreeProbe("gem", PACKAGES, 1, sees=(b"*.gemspec",)),
    "go": TreeProbe(
        "go",
        PACKAGES,
        1,
        reads=(b"vendor/modules.txt",),
        sees=(b"@v/*.zip", b"go.mod", b"bin/*"),
        mark=b"\xff Go buildinf:",
    ),
    "cargo": TreeProbe(
        "cargo",
        PACKAGES,
        1,
        reads=(b"deps/*.d", b"Cargo.toml", b".crates.toml"),
        sees=(b".cargo-checksum.json", b"*.crate"),
    ),
    "composer": TreeProbe("composer", PACKAGES, 1, reads=(b"composer/installed.json",)),
    "conda": TreeProbe("conda", PACKAGES, 1, reads=(b"conda-meta/history",), sees=(b"conda-meta/*.json",)),
    "rootfs": TreeProbe(
        "roots",
        PACKAGES,
        1,
        reads=(b"dpkg/status", b"status.d/*", b"db/installed", b"rpm/rpmdb.sqlite"),
        in_parts=True,
    ),
    "system": MachineProbe("system", PACKAGES, 1),
    "declared": TreeProbe(
        "declared",
        PACKAGES,
        2,
        reads=(
            *(b"requirements*", b"*requirements.txt", b"requirements/*.txt", b"requirements/*.in"),
            *(
                b"pyproject.toml",
                b"setup.cfg",
                b"Pipfile",
                b"Pipfile.lock",
                b"uv.lock",
                b"poetry.lock",
                b"METADATA",
                b"INSTALLER",
            ),
            *(b"package.json", b"package-lock.json", b"npm-shrinkwrap.json", b"pnpm-lock.yaml", b"yarn.lock"),
            b"node_modules/.package-lock.json",
        ),
        sees=(b"setup.py", b"environment.yml", b"environment.yaml", b"REQUESTED"),
    ),
    "service": PlaceProbe("services", SERVICES, 1),
    "container": PlaceProbe("containers", SERVICES, 1),
    "sqlite": TreeProbe(
        "sqlite",
        DATABASES,
        2,
        reads=(
            *(b"*.db", b"*.db3", b"*.sqlite", b"*.sqlite3", b"*.s3db", b"*.sl3"),
            *(b"*-wal", b"*-journal"),
        ),
        undotted=512,
        in_parts=True,
    ),
    "postgres": TreeProbe(
        "postgres",
        DATABASES,
        1,
        reads=(b"PG_VERSION", b"postmaster.pid", b"global/pg_control"),
        sees=(b"postgresql.auto.conf", b"postgresql.conf", b"pg_hba.conf"),
    ),
    "mysql": TreeProbe(
        "mysql",
        DATABASES,
        1,
        reads=(b"mariadb_upgrade_info", b"mysql_upgrade_info", b"mysql_upgrade_history"),
        sees=(b"ibdata1", b"*.pid", b"*.ibd", b"*.frm", b"*.MYI", b"*.MAI"),
    ),
    "redis": TreeProbe("redis", DATABASES, 1, reads=(b"*.rdb", b"*.aof.manifest"), in_parts=True),
    "parquet": TreeProbe("parquet", DATABASES, 1, reads=(b"*.parquet", b"*.pq"), in_parts=True),
    "duckdb": TreeProbe("duckdbfile", DATABASES, 1, reads=(b"*.duckdb", b"*.ddb"), in_parts=True),
    "csv": TreeProbe("csvfiles", DATABASES, 1, reads=(b"*.csv", b"*.tsv"), in_parts=True),
    "notebook": TreeProbe("notebooks", DATABASES, 1, reads=(b"*.ipynb",)),
    "dump": DumpProbe("dumps", DATABASES, 1),
    "database": SignProbe("atwork", DATABASES, 1),
    "env": TreeProbe("variables", VARIABLES, 2, reads=(b".env", b".envrc", b".env.*", b".envrc.*", b"*.env")),
    "tools": TreeProbe(
        "tools",
        TOOLS,
        1,
        reads=(
            *(
                b".python-version",
                b".nvmrc",
                b".node-version",
                b".ruby-version",
                b".java-version",
                b".go-version",
            ),
            *(b".terraform-version", b".tool-versions", b"rust-toolchain", b"rust-toolchain.toml", b"go.mod"),
            *(b"package.json", b"pyvenv.cfg"),
        ),
    ),
    "hook": PlaceProbe("githooks", TOOLS, 1),
}


def tree_probes() -> dict[str, TreeProbe]:
    """The probes that read the environment's own files."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, TreeProbe)}


def machine_probes() -> dict[str, MachineProbe]:
    """The probes that ask the machine."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, MachineProbe)}


def place_probes() -> dict[str, PlaceProbe]:
    """The probes that look at what belongs to one environment."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, PlaceProbe)}


def sign_probes() -> dict[str, SignProbe]:
    """The probes of what a capture comes upon."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, SignProbe)}


def kinds() -> dict[str, str]:
    """The class of each probe, in the order of the rows of a story."""
    return {name: probe.kind for name, probe in PROBES.items()}


def tree_leaf(probe: TreeProbe) -> TreeLeaf:
    """The leaf of a probe of files, loaded."""
    leaf: TreeLeaf = _load(probe.leaf)
    return leaf


def parts_leaf(probe: TreeProbe) -> PartsLeaf:
    """The same, of one that reads large files, too."""
    leaf: PartsLeaf = _load(probe.leaf)
    return leaf


def machine_leaf(probe: MachineProbe) -> MachineLeaf:
    """The leaf of a probe of the machine, loaded."""
    leaf: MachineLeaf = _load(probe.leaf)
    return leaf


def place_leaf(probe: PlaceProbe) -> PlaceLeaf:
    """The leaf of a probe of what belongs to an environment, loaded."""
    leaf: PlaceLeaf = _load(probe.leaf)
    return leaf


def sign_leaf(probe: SignProbe) -> SignLeaf:
    """The leaf of a probe of what a capture comes upon, loaded."""
    leaf: SignLeaf = _load(probe.leaf)
    return leaf


def _load(leaf: str) -> Any:
    return import_module(f"{__name__}.{leaf}")
