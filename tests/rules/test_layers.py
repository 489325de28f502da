"""Check which package imports which, by the syntax of every file: the layers of docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.rules.source import CHECKOUT, Import, Source, sources

# Each package or module below `git_envhist`, the lowest first. It may import those of earlier lines, and none of the
# same line. Late imports and those for type checkers count.
LAYERS = """
_version
lazy
errors
trace
printable_text
platform
disk
locks
directories_of_others
paths
peers
workers
toml_text
config dotenv
model
git
child_command
objects
probes
secrets
snapshots
worktree
watcher
diff
history
discovery
consent
service_dumps
capture
context
tracking
restore
ports_in_use
fork
checks
remote
rewrite
maintenance
retention
integrations
recent_changes
guarded_work
api
aio
handlers
compat html mcp tui
cli
"""
RANKS = {name: rank for rank, line in enumerate(LAYERS.split("\n")) for name in line.split()}

# These packages run the programs and read their JSON, and may import only these modules.
READERS = {
    "html": {"errors", "lazy", "printable_text", "platform", "model", "history", "diff", "_version"},
    "mcp": {"errors", "lazy", "printable_text", "platform", "model", "secrets", "diff", "_version"},
    "tui": {"errors", "lazy", "printable_text", "platform", "model", "diff", "history", "_version"},
}

# Each third-party library is imported by one package.
HOMES = {
    "mcp": ("git_envhist.mcp",),
    "anyio": ("git_envhist.mcp",),
    "starlette": ("git_envhist.mcp",),
    "uvicorn": ("git_envhist.mcp",),
    "pydantic": ("git_envhist.mcp",),
    "dulwich": (
        *("git_envhist.objects", "git_envhist.rewrite", "git_envhist.retention", "git_envhist.maintenance"),
        *("git_envhist.remote", "git_envhist.snapshots.chunks"),
    ),
    "zstandard": ("git_envhist.objects.zstd_frames",),
    "isal": ("git_envhist.objects.deflate",),
    "pyfastcdc": ("git_envhist.snapshots.chunks",),
    "cryptography": ("git_envhist.secrets",),
    "pathspec": ("git_envhist.worktree.path_patterns",),
    "click": ("git_envhist.cli",),
    "rich": ("git_envhist.cli", "git_envhist.tui"),
    "textual": ("git_envhist.tui",),
}

# Modules without effects: they get values and return values.
PURE = (
    "git_envhist.model",
    "git_envhist.errors",
    "git_envhist.printable_text",
    "git_envhist.toml_text",
    "git_envhist.snapshots.quoting",
    "git_envhist.snapshots.stored_names",
    "git_envhist.snapshots.layout",
    "git_envhist.snapshots.manifest",
    "git_envhist.snapshots.message",
    "git_envhist.snapshots.calls",
    "git_envhist.snapshots.note_records",
    "git_envhist.history.revisions",
    "git_envhist.history.timeline",
    "git_envhist.history.titles",
    "git_envhist.history.graph",
    "git_envhist.history.times",
    "git_envhist.history.tasks_and_effects",
    "git_envhist.history.attribution",
    "git_envhist.history.failure",
    "git_envhist.diff.required_packages",
    "git_envhist.diff.config_files",
    "git_envhist.diff.path_classes",
    "git_envhist.diff.importance",
    "git_envhist.diff.summary",
    "git_envhist.restore.plan_steps",
    "git_envhist.restore.merge_keys",
    "git_envhist.restore.merge_variables",
    "git_envhist.restore.merge_settings",
    "git_envhist.restore.edit_json",
    "git_envhist.restore.edit_toml",
    "git_envhist.restore.edit_yaml",
    "git_envhist.objects.trees",
    "git_envhist.objects.commits",
    "git_envhist.secrets.rules",
)
EFFECTS = {
    *(
        "os",
        "io",
        "subprocess",
        "socket",
        "shutil",
        "tempfile",
        "pathlib",
        "time",
        "random",
        "secrets",
        "uuid",
    ),
    *(
        "threading",
        "multiprocessing",
        "signal",
        "fcntl",
        "mmap",
        "select",
        "logging",
        "sqlite3",
        "platform",
        "sys",
    ),
}
CLOCKS = {"now", "utcnow", "today"}

SOURCES = sources()


def ours(module: str) -> bool:
    return module == "git_envhist" or module.startswith("git_envhist.")


def within(module: str, home: str) -> bool:
    return module == home or module.startswith(home + ".")


def package_of(module: str) -> str:
    return [*module.split("."), ""][1]


def place(source: Source, found: Import) -> str:
    return f"{source.path.name}:{found.line} imports {found.module}"


def test_imports_point_down() -> None:
    assert [line for source in SOURCES for line in _imports_that_point_up(source)] == []


def _imports_that_point_up(source: Source) -> list[str]:
    if (
        source.package == ""
    ):  # the package's own `__init__`, which names the contents of `api`, `aio` and `model`
        return []
    targets = [
        found for found in source.imports if ours(found.module) and package_of(found.module) != source.package
    ]
    return [
        place(source, found) for found in targets if not _may_import(source.package, package_of(found.module))
    ]


def _may_import(importer: str, imported: str) -> bool:
    if importer in READERS:
        return imported in READERS[importer]
    return imported == "" or RANKS[imported] < RANKS[importer]


def test_third_party_libraries_are_imported_by_one_package_only() -> None:
    wrong = []
    for source in SOURCES:
        for found in source.imports:
            homes = HOMES.get(found.module.split(".")[0])
            if homes is not None and not any(within(source.name, home) for home in homes):
                wrong.append(place(source, found))
    assert wrong == []


def test_pure_modules_do_not_use_the_disk_or_the_clock() -> None:
    pure = [source for source in SOURCES if any(within(source.name, name) for name in PURE)]
    assert pure
    assert [line for source in pure for line in _effects(source)] == []


def _effects(source: Source) -> list[str]:
    wrong = [place(source, found) for found in source.imports if found.module.split(".")[0] in EFFECTS]
    wrong += [f"{source.path.name}:{line} reads the clock" for line in _clock_reads(source)]
    wrong += [f"{source.path.name}:{line} opens a file" for line in _opens(source)]
    return wrong


def _clock_reads(source: Source) -> list[int]:
    calls = list(source.nodes(ast.Call))
    return [n.lineno for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr in CLOCKS]


def _opens(source: Source) -> list[int]:
    calls = list(source.nodes(ast.Call))
    return [
        n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id in {"open", "print", "input"}
    ]


def test_late_imports_give_their_reason() -> None:
    assert [line for source in SOURCES for line in _unexplained_late_imports(source)] == []


def _unexplained_late_imports(source: Source) -> list[str]:
    # A comment applies to a few imports in a row.
    return [
        place(source, found)
        for found in source.imports
        if found.late
        and not any("# loaded" in line for line in source.lines[max(found.line - 5, 0) : found.line + 3])
    ]


def test_every_package_has_a_layer() -> None:
    assert {source.package for source in SOURCES} - {""} == set(RANKS)


def test_packages_have_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for source in SOURCES:
        below = {package_of(found.module) for found in source.imports if ours(found.module)}
        graph.setdefault(source.package, set()).update(below - {source.package})
    # The package's own `__init__` names its public classes, and loads their modules only when they are used.
    graph.pop("")
    assert _cycle(graph) == []


def test_modules_have_no_import_cycle_when_they_are_loaded() -> None:
    names = {source.name for source in SOURCES}
    graph = {
        source.name: {
            module
            for found in source.imports
            if not (found.late or found.typing)
            for module in _loaded(found.module, names)
            if module != source.name
        }
        for source in SOURCES
    }
    assert _cycle(graph) == []


def _loaded(module: str, names: set[str]) -> Iterable[str]:
    """Return the module of an import; `git_envhist.model` for a name in it."""
    return [one for one in (module, module.rpartition(".")[0]) if one in names and one != "git_envhist"][:1]


def _cycle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as found:
        return list(found.args[1])
    return []


IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # An optional library may be missing, a module of ours may not.
        if (error.name or "").startswith("git_envhist"):
            print(name)
    except BaseException as error:
        print(name, repr(error))
"""


def test_every_module_can_be_imported() -> None:
    # Also each of them alone: `test_modules_have_no_import_cycle_when_they_are_loaded`.
    names = [source.name for source in SOURCES if source.path.name != "__main__.py"]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *names], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == [""], done.stderr
