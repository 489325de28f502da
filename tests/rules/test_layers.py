"""Who may import whom: the arrows of docs/architecture.md, held on the syntax of every file, late imports included."""

from __future__ import annotations

import ast

from tests.rules.source import Import, Source, sources

VOCABULARY = {"model", "errors", "system", "values", "ourselves", "spelling", "trace", "_version", "dotenv"}

WORKSHOPS = {"settings", "capture", "facts", "store", "history", "restore"}
WIRING = {"api", "core", "moments", "capturing", "restoring", "forking", "verifying", "lookup"}

# Which history is meant by a directory, and how one begins; the state of servers.
WIRING |= {"opening", "beginning", "services"}

# Tasks, and what happens outside the machine.
WIRING |= {"doing"}

# What is kept and what goes.
WIRING |= {"keeping"}

# What changed of late, without any snapshot.
WIRING |= {"recently"}

# Pushes, fetches, and what came with them.
WIRING |= {"sharing"}

# How large moments are.
WIRING |= {"measuring"}

# What keeps a history in order.
WIRING |= {"upkeep"}

# Each room and the rooms that it may know: any below its own. Siblings do not know each other: what one
# needs from another it declares as a Protocol, and the wiring hands it in.
MAY_KNOW = {
    "": VOCABULARY | {"api", "library"},
    "_version": set(),
    "model": {"values"},
    "values": set(),
    "dotenv": {"values"},
    "errors": set(),
    "system": set(),
    "ourselves": set(),
    "spelling": set(),
    "trace": set(),
    "settings": VOCABULARY,
    "capture": VOCABULARY,
    "facts": VOCABULARY,
    "store": VOCABULARY,
    "history": VOCABULARY,
    "restore": VOCABULARY | {"history"},
    # What joins the rooms: the steps of a capture stand beside `api`.
    **dict.fromkeys(WIRING, VOCABULARY | WORKSHOPS | WIRING),
    "triggers": VOCABULARY | WORKSHOPS | WIRING,
    # What a program of others is given: the verbs, and what only a host needs.
    "library": VOCABULARY | WORKSHOPS | WIRING | {"triggers"},
    "compat": VOCABULARY | WORKSHOPS | WIRING | {"triggers", "library"},
    # What serves the protocol runs our programs, and knows nothing else of them.
    # The mask is applied to all that leaves, whichever program says it.
    "mcp": VOCABULARY | {"capture"},
    # Likewise what shows a history on a terminal; it folds what they tell it as they do themselves.
    "browse": VOCABULARY | {"history"},
    # Values as `--json` has them in, a text out; it orders and words them as the list does.
    "page": VOCABULARY | {"history"},
    # Of `compat` it knows the one door by which a command line of others enters.
    "cli": VOCABULARY | WORKSHOPS | WIRING | {"triggers", "mcp", "compat", "page", "browse"},
}

# A package that others made has one home.
HOMES = {
    "mcp": ("git_envhist.mcp",),
    "anyio": ("git_envhist.mcp",),
    "pydantic": ("git_envhist.mcp",),
    "dulwich": ("git_envhist.snapshots",),
    "zstandard": ("git_envhist.snapshots",),
    "isal": ("git_envhist.snapshots",),
    "pyfastcdc": ("git_envhist.snapshots",),
    "cryptography": tuple(
        f"git_envhist.worktree.{name}" for name in ("seal", "wrapping", "agefile", "agekeys")
    ),
    "pathspec": ("git_envhist.worktree",),
    "click": ("git_envhist.cli",),
    "rich": ("git_envhist.cli", "git_envhist.tui"),
    "textual": ("git_envhist.tui",),
}

# Decisions, apart from effects: values in, values out.
PURE = (
    "git_envhist.model",
    "git_envhist.errors",
    "git_envhist.history",
    "git_envhist.restore.plan",
    "git_envhist.snapshots.manifest",
    "git_envhist.snapshots.message",
    "git_envhist.snapshots.names",
    "git_envhist.objects.trees",
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


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def place(source: Source, found: Import) -> str:
    return f"{source.path.name}:{found.line} imports {found.module}"


def test_imports_point_down() -> None:
    assert [line for source in SOURCES for line in _imports_that_point_up(source)] == []


def _imports_that_point_up(source: Source) -> list[str]:
    allowed = MAY_KNOW[source.room] | {source.room}
    targets = [found for found in source.imports if ours(found.module)]
    return [place(source, found) for found in targets if room_of(found.module) not in allowed]


def test_libraries_are_imported_in_their_home_alone() -> None:
    wrong = []
    for source in SOURCES:
        for found in source.imports:
            homes = HOMES.get(found.module.split(".")[0])
            if homes is not None and not any(within(source.name, home) for home in homes):
                wrong.append(place(source, found))
    assert wrong == []


def test_pure_modules_touch_neither_the_disk_nor_the_clock() -> None:
    pure = [source for source in SOURCES if any(within(source.name, name) for name in PURE)]
    assert pure
    assert [line for source in pure for line in _effects(source)] == []


def _effects(source: Source) -> list[str]:
    wrong = [place(source, found) for found in source.imports if found.module.split(".")[0] in EFFECTS]
    wrong += [f"{source.path.name}:{line} reads the clock" for line in _clock_reads(source)]
    wrong += [f"{source.path.name}:{line} opens a file" for line in _opens(source)]
    return wrong


def _clock_reads(source: Source) -> list[int]:
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    return [n.lineno for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr in CLOCKS]


def _opens(source: Source) -> list[int]:
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    return [
        n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id in {"open", "print", "input"}
    ]


def test_late_imports_give_their_reason() -> None:
    assert [line for source in SOURCES for line in _unexplained_late_imports(source)] == []


def _unexplained_late_imports(source: Source) -> list[str]:
    # One comment serves a few imports in a row.
    return [
        place(source, found)
        for found in source.imports
        if found.late
        and not any("# loaded" in line for line in source.lines[max(found.line - 5, 0) : found.line + 3])
    ]


def test_every_room_of_the_house_is_known_here() -> None:
    assert {source.room for source in SOURCES} <= set(MAY_KNOW)
