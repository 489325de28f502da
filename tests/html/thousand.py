"""The history of a project over three months with 1,000 snapshots: changes by pip, npm, SQLite, git and a person.

All changes are real: installers install and remove packages, checks run, and restores restore. The intents are texts
that people write, and some hostile texts that must do no harm.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.real.tools import MACHINE, tools
from tests.support.repository import Repo, Result, make_repo

BEGAN = datetime(2026, 8, 3, 8, 50, tzinfo=timezone(timedelta(hours=2)))
CHECK = ".venv/bin/python check.py"
MODULES = ("app", "basket", "checkout", "orders", "search", "mails", "returns", "stock", "users", "prices")
VIEWS = ("main", "Basket", "Checkout", "Search", "Orders", "Login")
PYTHON = ("flask", "requests", "sqlalchemy")
WANTED = ("redis", "celery", "stripe", "pydantic", "alembic", "rich", "click==8.1.7", "click", "httpx", "pillow",
          "attrs", "pyyaml", "jinja2==3.1.4", "jinja2", "babel", "markdown", "orjson",
          "psutil", "cryptography")  # fmt: skip
NODE = ("preact", "nanoid", "zod", "dayjs", "picocolors", "semver", "lodash", "left-pad", "esbuild", "postcss",
        "@preact/signals", "clsx", "immer", "zustand", "date-fns")  # fmt: skip
WORK = (
    "Basket keeps its items over a reload", "Prices with VAT per country", "Order mails go out by a queue",
    "Search as you type", "Images are resized at upload", "Payment by card in test mode",
    "Stock cannot fall below zero", "Orders can be exported as CSV", "Address form checks the postcode",
    "Login with a link by mail", "A page for each maker", "Returns within 30 days", "before auth refactor",
    "wip", "try again", "it works on my machine", "undo the experiment with the cache", "tidy up",
)  # fmt: skip
LONG_PROMPT = (
    "The card form loses its state on the back button. Find out why, write a test that fails, mend it, and tell me "
    "in two sentences what it was. Do not touch the styles; they are being redone by somebody else at the moment."
)
PROMPTS = (
    "Make the failing basket test pass without touching the fixtures",
    "Split checkout.py, it has become too long", "Why is the search slow? Measure it, then fix it",
    "Write the migration for the returns table", "Use the queue for the order mails",
    LONG_PROMPT,
)  # fmt: skip
ODD = (
    "إصلاح سلة المشتريات بعد تحديث الصفحة", "תיקון טופס הכתובת", "购物车在刷新后保留商品",
    "検索が遅い理由を調べてから直す", "Корзина после перезагрузки", "🚀 ship it 🎉👩‍👩‍👧‍👦",
    "e\u0301toile cafe\u0301 Zürich",
    "<script>alert('basket')</script> in the search field is shown as text",
    "colours \x1b[31mred\x1b[0m and \x07 bell in the log", "invoice\u202efdp.exe is renamed",
    "first line of three\nthe second says more\n\nand the third, after an empty one, says why",
    "a" * 180, "the whole story of this afternoon: " + "we tried one thing, then another; " * 50,
)  # fmt: skip
NAMES = ("uploads/with space.txt", "uploads/日本語.txt", "uploads/ملف.txt", "uploads/<b>bold</b>.html",
         "uploads/new\nline.txt", "uploads/\x1b[31mred.txt", "uploads/-rf", "uploads/a&b;c'd\"e.txt")  # fmt: skip


class Life:
    """A project, its clock and the actions that change it."""

    def __init__(self, place: Path, seed: int = 11) -> None:
        self.repo = make_repo(place / "shop", commit=False)
        self.root = self.repo.path
        self.outside = _installers(place / "caches")
        self.chance = random.Random(seed)
        self.at = BEGAN
        self.number = 0
        self.named = 0

    def tell(self, moments: int) -> Repo:
        self._begin()
        deeds = (
            *((self.edit, 40), (self.code, 11), (self.agent, 12), (self.pip, 7), (self.npm, 4)),
            *((self.data, 8), (self.build, 4), (self.settings, 3), (self.restore, 4), (self.remark, 2)),
            *((self.oddity, 3), (self.nothing_said, 1)),
        )
        while self.number < moments:
            deed = self.chance.choices([one for one, _ in deeds], [weight for _, weight in deeds])[0]
            deed()
            if self.number % 50 < 2:
                print(f"{self.number} snapshots", flush=True)
        return self.repo

    def _begin(self) -> None:
        self.repo.write(".gitignore", ".env\n.venv/\nnode_modules/\n*.db\ndist/\nuploads/\n")
        self.repo.write("package.json", '{"name": "shop", "private": true}\n')
        for name in MODULES:
            self.repo.write(f"shop/{name}.py", f"def {name}():\n    return {name!r}\n" * 40)
        for name in VIEWS:
            self.repo.write(f"web/{name}.tsx", f"export const {name} = () => null\n" * 60)
        imports = "\n".join(f"import shop.{name}" for name in MODULES)
        self.repo.write("check.py", f"import sys\nsys.dont_write_bytecode = True\n{imports}\n")
        self.repo.commit("shop: a first version")
        self.take("clean clone", "--name", "clean")
        self.repo.execute(sys.executable, "-m", "venv", "--without-pip", ".venv")
        self._installing("pip install -r requirements.txt", self._pip("install", *PYTHON))
        self._installing("npm install", ("npm", "install", "--silent", "--ignore-scripts", *NODE[:5]))
        self.repo.write(
            ".env", "API_URL=http://localhost:8000\nSTRIPE_KEY=sk_test_4eC39HqLyjWDarjtT1zdp7dc\n"
        )
        self.data()
        self.take("the shop runs on this machine", "--name", "works", "--verify", CHECK)

    # --- actions

    def edit(self) -> None:
        self._change(self.chance.randint(1, 5))
        self.take(self.chance.choice(WORK), *self._check(0.45))

    def code(self) -> None:
        self._change(self.chance.randint(2, 7))
        intent = self.chance.choice(WORK)
        self.repo.commit(intent)
        self.take(intent, *self._check(0.7), *self._name(0.15))

    def agent(self) -> None:
        prompt = self.chance.choice(PROMPTS)
        told = {"GIT_ENVHIST_AGENT": "claude-code", "GIT_ENVHIST_AGENT_VERSION": "2.1.326"}
        for _ in range(self.chance.randint(1, 3)):
            self._change(self.chance.randint(1, 3))
            self.take(prompt, *self._check(0.3), minutes=(1, 6), **told)

    def pip(self) -> None:
        name = self.chance.choice(WANTED)
        if self.chance.random() < 0.25:
            name = name.partition("==")[0]
            self._installing(f"pip uninstall {name}", self._pip("uninstall", "-y", name))
        else:
            self._installing(f"pip install {name}", self._pip("install", name))

    def npm(self) -> None:
        verb = self.chance.choice(("install", "install", "uninstall"))
        name = self.chance.choice(NODE)
        self._installing(f"npm {verb} {name}", ("npm", verb, "--silent", "--ignore-scripts", name))

    def data(self) -> None:
        with closing(sqlite3.connect(self.root / "shop.db")) as database, database:
            database.execute(
                "create table if not exists orders (id integer primary key, item text, note text)"
            )
            if self.chance.random() < 0.1:
                database.execute(f"create table extra{self.number} (id integer primary key, what text)")
            number = self.chance.randint(20, 400)
            rows = [(f"item {n}", "x" * self.chance.randint(100, 900)) for n in range(number)]
            database.executemany("insert into orders (item, note) values (?, ?)", rows)
            if self.chance.random() < 0.3:
                database.execute("delete from orders where id % 3 = 0")
        self.take("sample orders for the returns page")

    def build(self) -> None:
        bundle = self.chance.randbytes(self.chance.randint(30_000, 900_000)).hex()
        self.repo.write(f"dist/assets/index-{self.number:x}.js", bundle)
        for old in sorted((self.root / "dist/assets").iterdir(), key=os.path.getmtime)[:-4]:
            old.unlink()
        self.take("npm run build")

    def settings(self) -> None:
        with (self.root / ".env").open("a") as file:
            file.write(f"FEATURE_{self.number}=on\n")
        self.take("switch a feature on", *self._check(0.5))

    def restore(self) -> None:
        back = self.chance.randint(2, 12)
        self._ours("envrestore", f"@~{back}")
        if self.chance.random() < 0.5:
            self._pass((2, 9))
            self._ours("envrestore", "--undo")
        self._count()

    def remark(self) -> None:
        self._ours("envlog", "note", "-m", "asked the others: this is how it is to be")
        if self.chance.random() < 0.5:
            self._ours("envlog", "effect", "test mails went out to 3 people", "--irreversible")
        self.edit()

    def oddity(self) -> None:
        name = self.chance.choice(NAMES)
        self.repo.write(name, self.chance.choice(ODD) * self.chance.randint(1, 400))
        self.take(self.chance.choice(ODD), *self._name(0.3))

    def nothing_said(self) -> None:
        self._change(1)
        self.take(None)

    # --- captures and time

    def take(self, intent: str | None, *words: str, minutes: tuple[int, int] = (5, 50), **env: str) -> None:
        self._pass(minutes)
        self._ours("envlog", "capture", *(("-m", intent) if intent else ()), *words, **env)
        self.number += 1

    def _installing(self, intent: str, words: tuple[str, ...]) -> None:
        self._pass((5, 40))
        self._ours("envlog", "run", "-m", intent, *self._check(0.4), "--", *words, **self.outside)
        self._count()

    def _ours(self, program: str, *words: str, **env: str) -> Result:
        # Commands may fail: that is part of a real history.
        when = {"GIT_COMMITTER_DATE": self.at.isoformat(), "GIT_AUTHOR_DATE": self.at.isoformat()}
        return self.repo.run(program, *words, env={**env, **when})

    def _count(self) -> None:
        self.number = int(self.repo.git("rev-list", "--count", "--glob=refs/envhist/heads/*"))

    def _pip(self, *words: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "pip", "--python", ".venv/bin/python", words[0], "-q", *words[1:])

    def _pass(self, minutes: tuple[int, int]) -> None:
        self.at += timedelta(minutes=self.chance.randint(*minutes), seconds=self.chance.randint(0, 59))
        if self.at.hour >= 18:
            days = 3 if self.at.weekday() == 4 else 1
            self.at = self.at.replace(hour=8, minute=self.chance.randint(30, 59)) + timedelta(days=days)

    def _check(self, often: float) -> tuple[str, ...]:
        if self.chance.random() >= often:
            return ()
        return ("--verify", CHECK if self.chance.random() < 0.96 else "no-such-runner tests")

    def _name(self, often: float) -> tuple[str, ...]:
        if self.chance.random() >= often:
            return ()
        self.named += 1
        return ("--name", f"v0.{self.named}")

    def _change(self, files: int) -> None:
        places = sorted((self.root / "shop").glob("*.py")) + sorted((self.root / "web").iterdir())
        broken = [place for place in places if "def broken(:" in place.read_text()]
        mended = broken if self.chance.random() < 0.5 else []
        for place in sorted({*self.chance.sample(places, files), *mended}):
            lines = f"# {self.number} {self.chance.random()}\n" * self.chance.randint(1, 30)
            comment = lines if place.suffix == ".py" else lines.replace("#", "//")
            with place.open("a") as file:
                file.write(comment)
            text = place.read_text()
            if "def broken(:" in text:
                place.write_text(text.replace("def broken(:\n", ""))
            elif self.chance.random() < 0.06 and place.suffix == ".py":
                place.write_text(text + "def broken(:\n")
        shutil.rmtree(self.root / "shop/__pycache__", ignore_errors=True)


def _installers(caches: Path) -> dict[str, str]:
    """Return the machine's settings for package indexes; the programs use no other settings of the machine."""
    told = {name: value for name, value in tools(caches).items() if name.startswith(("PIP_", "npm_"))}
    home = Path(MACHINE.get("HOME", "/"))
    places = {"PIP_CONFIG_FILE": home / ".config/pip/pip.conf", "npm_config_userconfig": home / ".npmrc"}
    return {**told, **{name: str(place) for name, place in places.items() if place.exists()}}
