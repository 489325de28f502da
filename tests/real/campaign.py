"""Break a shop over and over: `python -m tests.real.campaign [--rounds N] [--seed N]`.

Each round makes random changes that people and agents make to a project, sometimes captures, and restores one of the
snapshots. rsync compares the result with a copy made at the capture, and the project is run. Differences are printed
and end the program with status 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.conftest import sealed_environment
from tests.real.shop import FIELD, build_backend, build_frontend, manage
from tests.real.tools import MACHINE, Project, tools
from tests.support.oracle import git_fsck, tree_differences
from tests.support.programs import make_programs
from tests.support.repository import make_repo

MOMENTS = 3
"""The number of snapshots kept to restore, each with a copy."""
Deed = Callable[[Project, random.Random], None]


def attempt(shop: Project, *words: str, cwd: str = ".") -> None:
    """Run a program that may already be broken or missing."""
    with suppress(OSError):
        shop.call(*words, cwd=cwd, check=False)


def upgrade(shop: Project, chance: random.Random) -> None:
    package = chance.choice(("sqlparse", "sqlparse<0.5", "asgiref"))
    attempt(shop, ".venv/bin/python", "-m", "pip", "install", "-q", "--upgrade", package)


def uninstall(shop: Project, chance: random.Random) -> None:
    attempt(shop, ".venv/bin/python", "-m", "pip", "uninstall", "-qy", chance.choice(("asgiref", "django")))


def install_of_node(shop: Project, chance: random.Random) -> None:
    package = chance.choice(("semver@6.3.0", "has-flag@4.0.0", "mkdirp@1"))
    attempt(shop, "npm", "install", "--silent", package, cwd="front")


def remove_a_directory(shop: Project, chance: random.Random) -> None:
    found = [
        os.path.join(above, name)
        for above, names, _ in os.walk(shop.path)
        for name in names
        if ".git" not in os.path.join(above, name).split("/")
    ]
    if found:
        shutil.rmtree(chance.choice(found), ignore_errors=True)


def migrate(shop: Project, chance: random.Random) -> None:
    with suppress(OSError), open(shop.path / "catalog/models.py", "a") as models:
        models.write(FIELD.replace("price", f"price{chance.randrange(1 << 30)}"))
    for words in (("makemigrations", "-v0"), ("migrate", "-v0")):
        attempt(shop, ".venv/bin/python", "manage.py", *words)


def clean(shop: Project, chance: random.Random) -> None:
    shop.call("git", "clean", chance.choice(("-fdxq", "-fdq")))


def start_anew(shop: Project, chance: random.Random) -> None:
    shop.call("git", "checkout", "-q", ".")
    shop.call("git", "stash", "-q", "--include-untracked")


def ruin_files(shop: Project, chance: random.Random) -> None:
    """Change the contents, modes or kinds of some files."""
    found = [path for path in shop.path.rglob("*") if path.is_file() and ".git" not in path.parts]
    for path in chance.sample(found, min(20, len(found))):
        deed = chance.randrange(4)
        if deed == 0:
            path.write_bytes(chance.randbytes(chance.randrange(5000)))
        elif deed == 1:
            path.chmod(0o600)
        elif deed == 2:
            path.unlink()
            path.mkdir()
            (path / "inside").write_text("x")
        else:
            os.utime(path)


DEEDS: tuple[Deed, ...] = (
    upgrade, uninstall, install_of_node, remove_a_directory, migrate, clean, start_anew, ruin_files,
)  # fmt: skip


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = words.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="envhist-real-") as above:
        programs, home = Path(above, "programs"), Path(above, "home")
        programs.mkdir()
        home.mkdir()
        os.environ["PATH"] = os.pathsep.join((str(make_programs(programs)), os.environ["PATH"]))
        os.environ.update(sealed_environment(home))
        os.umask(0o022)
        return _walk(Path(above), options.rounds, random.Random(options.seed))


def _walk(above: Path, rounds: int, chance: random.Random) -> int:
    shop = Project(make_repo(above / "project", commit=False), above / "0", tools(above / "caches"))
    build_backend(shop)
    if shutil.which("npm", path=MACHINE.get("PATH")):
        build_frontend(shop, "npm")
    moments = {_capture(shop): shop.model}
    working = next(iter(moments))
    done: Counter[str] = Counter()
    wrong = 0
    for number in range(1, rounds + 1):
        for deed in chance.choices(DEEDS, k=chance.randrange(1, 4)):
            done[deed.__name__] += 1
            deed(shop, chance)
        if chance.random() < 0.4:
            shop.model = above / str(number)
            moments[_capture(shop)] = shop.model
        target = chance.choice(list(moments))
        found = _go(shop, target, moments[target], runs=target == working)
        wrong += bool(found)
        print(f"{number}: to {target[:7]}: {found or 'equal'}", flush=True)
        while len(moments) > MOMENTS:
            gone = chance.choice([one for one in moments if one != working])
            shutil.rmtree(moments.pop(gone))
    print(f"| rounds | {rounds} |\n| wrong | {wrong} |")
    print("\n".join(f"| {name} | {count} |" for name, count in sorted(done.items())))
    print(git_fsck(shop.path) or "git fsck finds nothing")
    return 1 if wrong else 0


def _capture(shop: Project) -> str:
    taken = shop.repo.run("envlog", "capture", "--porcelain", "a moment", check=True).out.strip()
    subprocess.run(["cp", "-a", "--reflink=auto", shop.path, shop.model], check=True)
    return taken


def _go(shop: Project, target: str, model: Path, *, runs: bool) -> str:
    done = shop.repo.run("envrestore", target)
    if done.status != 0:
        return f"status {done.status}: {done.err}"
    if (differences := tree_differences(model, shop.path)) != ():
        return f"{len(differences)} differences: {differences[:5]}"
    if runs:
        manage(shop, "check")
        manage(shop, "migrate", "--check")
        shop.call(".venv/bin/pip", "check")
        if (shop.path / "front").exists():
            shop.call("npm", "test", cwd="front")
        if (differences := tree_differences(model, shop.path)) != ():
            return f"running it changed {differences[:5]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
