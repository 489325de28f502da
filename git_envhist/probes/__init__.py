"""The probes: facts about an environment and its machine beyond files. docs/internals/facts.md describes how to add
one.

A probe is one module in this package and one entry in `PROBES`. The entry has the name of the probe module,
the class of its facts, and the file name patterns that trigger it, so a module is imported only when a
matching file changed. The order of the entries is the order of rows in a summary. Probe modules run in a
child process with a timeout (`capture/probe_worker`).

The entry of a package manager is in `ECOSYSTEMS`. It also has everything that other packages need to know of it:
directories, lock files, interpreters and so on. They ask the functions below and name no package manager themselves.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from git_envhist.probes.base import (
    CaptureProbe,
    CaptureProbeModule,
    DumpProbe,
    EnvironmentProbe,
    EnvironmentProbeModule,
    FileProbe,
    FileProbeModule,
    LargeFileProbeModule,
    MachineProbe,
    MachineProbeModule,
)

PACKAGES, SERVICES, DATABASES, VARIABLES, TOOLS = "packages", "services", "databases", "env", "tools"
"""Classes of facts, as in `--only`."""

ECOSYSTEMS: dict[str, FileProbe] = {
    "pip": FileProbe(
        "python",
        PACKAGES,
        2,
        reads=(b"METADATA", b"PKG-INFO", b"INSTALLER", b"direct_url.json", b"pyvenv.cfg", b"*.egg-info"),
        sees=(b"REQUESTED", b"*.egg-link", b"site-packages/*.egg", b"dist-packages/*.egg"),
        directories=(
            *(b".venv", b"venv", b"site-packages", b"dist-packages", b"__pypackages__", b".tox", b".nox"),
        ),
        manifests=(b"pyproject.toml", b"setup.py", b"setup.cfg", b"requirements.txt"),
        runtime=r"python|libpython|pypy",
        libraries=(b"site-packages", b"dist-packages"),
        downloads=(
            "site-packages",
            "dist-packages",
            "lib/python2.*",
            "lib/python3.*",
            "lib64/python3.*",
            ".tox",
            ".nox",
        ),
        lists=(
            *(
                (b"pyproject.toml", "read_pyproject"),
                (b"setup.cfg", "read_setup_settings"),
                (b"setup.py", ""),
            ),
            *((b"Pipfile", "read_pipfile"), (b"Pipfile.lock", "read_pipfile_lock")),
            *((b"uv.lock", "read_packages_lock"), (b"poetry.lock", "read_packages_lock")),
            *((b"environment.yml", ""), (b"environment.yaml", "")),
        ),
        locks=(b"Pipfile.lock", b"uv.lock", b"poetry.lock"),
        records=(
            *(
                b"pyvenv.cfg",
                b"RECORD",
                b"direct_url.json",
                b"INSTALLER",
                b"REQUESTED",
                b"pip-selfcheck.json",
            ),
            b"uv_cache.json",
        ),
        interpreters=("python", "pypy"),
        version_files=((b".python-version", "python"),),
    ),
    "npm": FileProbe(
        "node",
        PACKAGES,
        2,
        reads=(b"package.json", b".pnp.cjs", b".pnp.js", b".pnp.data.json"),
        directories=(b"node_modules", b"bower_components", b"jspm_packages", b".yarn", b".pnpm-store"),
        manifests=(b"package.json",),
        runtime=r"nodejs|node|npm|yarn|yarnpkg",
        libraries=(b"node_modules",),
        downloads=(
            *(
                "node_modules",
                "bower_components",
                "jspm_packages",
                ".pnpm-store",
                ".npm/_cacache",
                ".yarn/cache",
            ),
        ),
        lists=(
            *((b"package.json", "read_manifest"), (b"package-lock.json", "read_npm_lock")),
            *((b"npm-shrinkwrap.json", "read_npm_lock"), (b"pnpm-lock.yaml", "read_pnpm_lock")),
            (b"yarn.lock", "read_yarn_lock"),
        ),
        locks=(
            *(b"package-lock.json", b"npm-shrinkwrap.json", b"pnpm-lock.yaml", b"yarn.lock"),
            b".package-lock.json",
        ),
        records=(b".package-lock.json", b".yarn-state.yml", b".yarn-integrity", b".modules.yaml"),
        interpreters=("node", "nodejs", "bun"),
        engines=("node", "npm", "pnpm", "yarn", "bun"),
        version_files=((b".nvmrc", "node"), (b".node-version", "node")),
    ),
    "deno": FileProbe(
        "deno",
        PACKAGES,
        1,
        reads=(b"deno.lock",),
        manifests=(b"deno.json", b"deno.jsonc"),
        runtime=r"deno",
        locks=(b"deno.lock",),
        interpreters=("deno",),
        engines=("deno",),
    ),
    "gem": FileProbe(
        "ruby",
        PACKAGES,
        1,
        sees=(b"*.gemspec",),
        directories=(b".bundle", b"gems"),
        manifests=(b"Gemfile",),
        runtime=r"ruby|libruby",
        locks=(b"Gemfile.lock",),
        interpreters=("ruby",),
        version_files=((b".ruby-version", "ruby"),),
    ),
    "go": FileProbe(
        "go",
        PACKAGES,
        1,
        reads=(b"vendor/modules.txt",),
        sees=(b"@v/*.zip", b"go.mod", b"bin/*"),
        mark=b"\xff Go buildinf:",
        manifests=(b"go.mod",),
        runtime=r"golang|go",
        downloads=("go/pkg/mod", "vendor"),
        locks=(b"go.sum",),
        version_files=((b".go-version", "go"),),
    ),
    "cargo": FileProbe(
        "cargo_crates",
        PACKAGES,
        1,
        reads=(b"deps/*.d", b"Cargo.toml", b".crates.toml"),
        sees=(b".cargo-checksum.json", b"*.crate"),
        manifests=(b"Cargo.toml",),
        runtime=r"rustc|cargo|rust",
        downloads=("target", ".cargo/registry", ".rustup/toolchains"),
        locks=(b"Cargo.lock",),
    ),
    "composer": FileProbe(
        "php",
        PACKAGES,
        1,
        reads=(b"composer/installed.json",),
        manifests=(b"composer.json",),
        runtime=r"php|libphp",
        downloads=("vendor",),
        locks=(b"composer.lock",),
        interpreters=("php",),
    ),
    "conda": FileProbe(
        "conda",
        PACKAGES,
        1,
        reads=(b"conda-meta/history",),
        sees=(b"conda-meta/*.json",),
        directories=(b"conda-meta",),
    ),
}
"""The package managers of languages; other packages get their tables from these entries, by the functions below."""

LISTS = tuple(each for probe in ECOSYSTEMS.values() for each in probe.lists)
VERSION_FILES = tuple(each for probe in ECOSYSTEMS.values() for each in probe.version_files)

PROBES: dict[str, FileProbe | MachineProbe | EnvironmentProbe | CaptureProbe | DumpProbe] = {
    **ECOSYSTEMS,
    "rootfs": FileProbe(
        "rootfs_packages",
        PACKAGES,
        1,
        reads=(b"dpkg/status", b"status.d/*", b"db/installed", b"rpm/rpmdb.sqlite"),
        in_parts=True,
    ),
    "system": MachineProbe("system_packages", PACKAGES, 1),
    "declared": FileProbe(
        "requirements",
        PACKAGES,
        2,
        reads=(
            *(b"requirements*", b"*requirements.txt", b"requirements/*.txt", b"requirements/*.in"),
            *(name for name, reader in LISTS if reader),
            *(b"METADATA", b"INSTALLER", b"node_modules/.package-lock.json"),
        ),
        sees=(*(name for name, reader in LISTS if not reader), b"REQUESTED"),
    ),
    "service": EnvironmentProbe("services", SERVICES, 1),
    "container": EnvironmentProbe("containers", SERVICES, 1),
    "sqlite": FileProbe(
        "sqlite",
        DATABASES,
        2,
        reads=(
            *(b"*.db", b"*.db3", b"*.sqlite", b"*.sqlite3", b"*.s3db", b"*.sl3"),
            *(b"*-wal", b"*-journal"),
        ),
        undotted=512,
        in_parts=True,
        runtime=r"sqlite|libsqlite",
    ),
    "postgres": FileProbe(
        "postgres",
        DATABASES,
        1,
        reads=(b"PG_VERSION", b"postmaster.pid", b"global/pg_control"),
        sees=(b"postgresql.auto.conf", b"postgresql.conf", b"pg_hba.conf"),
        runtime=r"postgresql|postgres|libpq",
    ),
    "mysql": FileProbe(
        "mysql",
        DATABASES,
        1,
        reads=(b"mariadb_upgrade_info", b"mysql_upgrade_info", b"mysql_upgrade_history"),
        sees=(b"ibdata1", b"*.pid", b"*.ibd", b"*.frm", b"*.MYI", b"*.MAI"),
        runtime=r"mysql|mariadb|libmysqlclient|libmariadb",
    ),
    "redis": FileProbe(
        "redis",
        DATABASES,
        1,
        reads=(b"*.rdb", b"*.aof.manifest"),
        in_parts=True,
        runtime=r"redis|valkey",
    ),
    "parquet": FileProbe("parquet", DATABASES, 1, reads=(b"*.parquet", b"*.pq"), in_parts=True),
    "duckdb": FileProbe(
        "duckdb_file",
        DATABASES,
        2,
        reads=(b"*.duckdb", b"*.ddb", b"*.duckdb.wal", b"*.ddb.wal"),
        in_parts=True,
    ),
    "csv": FileProbe("csv_files", DATABASES, 1, reads=(b"*.csv", b"*.tsv"), in_parts=True),
    "notebook": FileProbe("notebooks", DATABASES, 1, reads=(b"*.ipynb",)),
    "dump": DumpProbe("dumps", DATABASES, 1),
    "database": CaptureProbe("directories_in_use", DATABASES, 1),
    "env": FileProbe("variables", VARIABLES, 2, reads=(b".env", b".envrc", b".env.*", b".envrc.*", b"*.env")),
    "tools": FileProbe(
        "required_tool_versions",
        TOOLS,
        2,
        reads=(
            *(name for name, _ in VERSION_FILES),
            *(b".java-version", b".terraform-version", b".tool-versions"),
            *(b"rust-toolchain", b"rust-toolchain.toml", b"go.mod", b"package.json", b"pyvenv.cfg"),
        ),
    ),
    "hook": EnvironmentProbe("git_hooks", TOOLS, 1),
}


def file_probes() -> dict[str, FileProbe]:
    """Return the probes that read files of the environment."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, FileProbe)}


def machine_probes() -> dict[str, MachineProbe]:
    """Return the probes that query the machine."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, MachineProbe)}


def environment_probes() -> dict[str, EnvironmentProbe]:
    """Return the probes about things that belong to an environment but are not its files."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, EnvironmentProbe)}


def capture_probes() -> dict[str, CaptureProbe]:
    """Return the probes that evaluate paths a capture could not read consistently."""
    return {name: probe for name, probe in PROBES.items() if isinstance(probe, CaptureProbe)}


def kinds() -> dict[str, str]:
    """Return the class of each probe, in the order of rows in a summary."""
    return {name: probe.kind for name, probe in PROBES.items()}


@cache
def package_directories() -> frozenset[bytes]:
    """Return the names of all directories that package managers fill."""
    return frozenset(name for probe in ECOSYSTEMS.values() for name in probe.directories)


@cache
def libraries() -> frozenset[bytes]:
    """Return the names of directories that contain packages; files below them are not the project's own."""
    return frozenset(name for probe in ECOSYSTEMS.values() for name in probe.libraries)


def downloads() -> tuple[str, ...]:
    """Return patterns of directories with downloaded or built files, which are not searched for secrets."""
    return tuple(dict.fromkeys(name for probe in ECOSYSTEMS.values() for name in probe.downloads))


def manifests() -> tuple[bytes, ...]:
    """Return the names of files at the top of a project, of all package managers."""
    return tuple(name for probe in ECOSYSTEMS.values() for name in probe.manifests)


@cache
def locks() -> frozenset[bytes]:
    """Return the names of files that package managers write and people do not edit."""
    return frozenset(name for probe in ECOSYSTEMS.values() for name in probe.locks)


def records() -> frozenset[bytes]:
    """Return the names of files in which package managers record an installation."""
    return frozenset(name for probe in ECOSYSTEMS.values() for name in probe.records)


def interpreters() -> tuple[str, ...]:
    """Return the names of programs that run code of a project, without a version."""
    return tuple(name for probe in ECOSYSTEMS.values() for name in probe.interpreters)


def engines() -> tuple[str, ...]:
    """Return the names of tools whose version a `package.json` can require."""
    return tuple(name for probe in ECOSYSTEMS.values() for name in probe.engines)


def managers_with_lists() -> tuple[str, ...]:
    """Return the package managers whose requested packages are read from files."""
    return tuple(name for name, probe in ECOSYSTEMS.items() if probe.lists)


def runtimes() -> dict[str, str]:
    """Return, by probe, a regular expression for the machine packages of its interpreter (`python3.11`)."""
    return {name: probe.runtime for name, probe in file_probes().items() if probe.runtime}


def file_module(probe: FileProbe) -> FileProbeModule:
    """Import and return the module of a file probe."""
    module: FileProbeModule = _load(probe.module)
    return module


def large_file_module(probe: FileProbe) -> LargeFileProbeModule:
    """Import and return the module of a file probe that reads byte ranges of large files."""
    module: LargeFileProbeModule = _load(probe.module)
    return module


def machine_module(probe: MachineProbe) -> MachineProbeModule:
    """Import and return the module of a machine probe."""
    module: MachineProbeModule = _load(probe.module)
    return module


def environment_module(probe: EnvironmentProbe) -> EnvironmentProbeModule:
    """Import and return the module of an environment probe."""
    module: EnvironmentProbeModule = _load(probe.module)
    return module


def capture_module(probe: CaptureProbe) -> CaptureProbeModule:
    """Import and return the module of a capture probe."""
    module: CaptureProbeModule = _load(probe.module)
    return module


def _load(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
