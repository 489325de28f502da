"""The history of a small web shop, used for the pages in the tests and in the README.

Every snapshot is a real capture of files, at a fixed time. Packages have realistic sizes and metadata, but filler
content.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.model import Actor, IntentSource, Trigger
from tests.support.repository import make_repo

BEGAN = datetime(2026, 11, 2, 9, 4, tzinfo=UTC)
AGENT = Actor("Test User", "test@example.com", "claude-code", "2.0.31", "b6f1c2aa", "Edit")
PYTHON = (
    ("blinker", "1.9.0", 24),
    ("certifi", "2026.10.5", 290),
    ("click", "8.1.7", 190),
    ("flask", "3.0.1", 410),
    ("gunicorn", "23.0.0", 360),
    ("idna", "3.20", 160),
    ("itsdangerous", "2.2.0", 60),
    ("jinja2", "3.1.6", 690),
    ("markupsafe", "3.0.2", 70),
    ("packaging", "26.3", 250),
    ("requests", "2.32.5", 230),
    ("sqlalchemy", "2.0.44", 5200),
    ("typing-extensions", "4.16.0", 180),
    ("urllib3", "2.5.0", 470),
    ("werkzeug", "3.1.3", 920),
)
NODE = (
    ("esbuild", "0.25.9", 9800),
    ("nanoid", "3.3.11", 60),
    ("picocolors", "1.1.1", 20),
    ("postcss", "8.5.6", 410),
    ("react", "19.2.0", 340),
    ("react-dom", "19.2.0", 6400),
    ("react-router", "7.9.4", 1900),
    ("rollup", "4.52.5", 5600),
    ("scheduler", "0.27.0", 90),
    ("source-map-js", "1.2.1", 130),
    ("tinyglobby", "0.2.15", 70),
    ("vite", "7.1.12", 3100),
)
LATER = (
    ("pip", "redis", "6.4.0", 1150),
    ("pip", "celery", "5.5.3", 2600),
    ("npm", "zustand", "5.0.8", 140),
    ("pip", "stripe", "13.0.1", 4100),
    ("npm", "recharts", "3.3.0", 5300),
    ("pip", "pydantic", "2.12.3", 3900),
    ("npm", "date-fns", "4.1.0", 2200),
    ("pip", "pillow", "12.0.0", 6900),
    ("npm", "zod", "4.1.12", 1700),
    ("pip", "alembic", "1.17.0", 880),
    ("npm", "tailwindcss", "4.1.16", 2900),
    ("pip", "boto3", "1.40.59", 1500),
)
WORK = (
    "Basket keeps its items over a reload",
    "Prices with VAT per country",
    "Order mails go out by a queue",
    "Search as you type",
    "Images are resized at upload",
    "Payment by card in test mode",
    "Stock cannot fall below zero",
    "Orders can be exported as CSV",
    "Address form checks the postcode",
    "Login with a link by mail",
    "A page for each maker",
    "Returns within 30 days",
)
PROMPTS = (
    "Make the failing basket test pass without touching the fixtures",
    "Split checkout.py, it has become too long",
    "Why is the search slow? Measure it, then fix it",
    "Write the migration for the returns table",
    "Use the queue for the order mails",
    "The card form loses its state on the back button",
)


class Workshop:
    """The environment, the actions that change it, and the clock."""

    def __init__(self, path: Path, seed: int = 7) -> None:
        self.repo = make_repo(path)
        self.root = path
        self.at = BEGAN
        self.dice = random.Random(seed)
        self.number = 0
        self.later = list(LATER)

    def tell(self, moments: int) -> EnvHistory:
        """Take `moments` captures and return the history."""
        began = os.environ.get("GIT_COMMITTER_DATE")
        try:
            self._begin()
            while self.number < moments:
                self._one_more()
        finally:
            os.environ.pop("GIT_COMMITTER_DATE", None)
            if began is not None:
                os.environ["GIT_COMMITTER_DATE"] = began
        return EnvHistory.open(str(self.root), workers="here", one_command=True)

    def _begin(self) -> None:
        self.write(".gitignore", ".env\n.venv/\nnode_modules/\n*.db\ndist/\n")
        self.write(
            "package.json",
            json.dumps({"name": "shop", "dependencies": {"react": "^19.2.0", "vite": "^7.1.0"}}),
        )
        self.write("requirements.txt", "flask\nsqlalchemy\nrequests\ngunicorn\n")
        for name in ("app", "basket", "checkout", "orders", "search", "mails"):
            self.write(f"shop/{name}.py", f"def {name}():\n    return {name!r}\n" * 40)
        for name in ("main", "Basket", "Checkout", "Search"):
            self.write(f"web/{name}.tsx", f"export const {name} = () => null\n" * 60)
        self.repo.commit("shop: a first version")
        self.take("clean clone", Trigger.MANUAL, name="clean")
        self.write(".venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n")
        for package in PYTHON:
            self.python(*package)
        self.take("pip install -r requirements.txt", Trigger.RUN)
        for package in NODE:
            self.node(*package)
        self.take("npm ci", Trigger.RUN)
        self.write(".env", "API_URL=http://localhost:8000\nSTRIPE_KEY=sk_test_4eC39HqLyjWDarjtT1zdp7dc\n")
        self.database()
        self.take("the shop runs on this machine", Trigger.MANUAL, check="exit 0", name="works")

    def _one_more(self) -> None:
        kind = self.dice.choices(
            ("agent", "work", "package", "upgrade", "build", "data", "settings"), (9, 5, 3, 2, 2, 2, 1)
        )[0]
        getattr(self, f"_{kind}")()

    def _agent(self) -> None:
        prompt = self.dice.choice(PROMPTS)
        for _ in range(self.dice.randint(1, 3)):
            self.edit(self.dice.randint(1, 4))
            self.take(
                prompt, Trigger.AGENT, check=self.dice.choice(("", "", "exit 0", "exit 1")), minutes=(1, 6)
            )

    def _work(self) -> None:
        self.edit(self.dice.randint(2, 7))
        intent = self.dice.choice(WORK)
        self.repo.commit(intent)
        self.take(
            intent,
            Trigger.COMMIT,
            check=self.dice.choice(("exit 0", "exit 0", "exit 1", "")),
            name=f"v0.{self.number}" if self.dice.random() < 0.2 else None,
        )

    def _package(self) -> None:
        if not self.later:
            return self._upgrade()
        kind, name, version, size = self.later.pop(0)
        (self.python if kind == "pip" else self.node)(name, version, size)
        self.take(
            f"{'pip' if kind == 'pip' else 'npm'} install {name}",
            Trigger.RUN,
            check=self.dice.choice(("exit 0", "exit 1", "")),
        )
        return None

    def _upgrade(self) -> None:
        for name, version, size in self.dice.sample(PYTHON, 3):
            self.python(
                name,
                f"{version.rsplit('.', 1)[0]}.{self.number}",
                size + self.dice.randint(0, 60),
                instead=True,
            )
        self.take(
            "upgrade what has known weaknesses",
            Trigger.RUN,
            check=self.dice.choice(("exit 0", "exit 1", "exec no-such-runner")),
        )

    def _build(self) -> None:
        self.bytes(f"dist/assets/index-{self.number:x}.js", self.dice.randint(200, 1400))
        self.bytes("dist/assets/style.css", self.dice.randint(20, 90))
        for old in sorted((self.root / "dist/assets").glob("index-*.js"), key=os.path.getmtime)[:-3]:
            old.unlink()
        self.take("npm run build", Trigger.RUN)

    def _data(self) -> None:
        self.database()
        self.take("sample orders for the returns page", Trigger.MANUAL)

    def _settings(self) -> None:
        with (self.root / ".env").open("a") as file:
            file.write(f"FEATURE_{self.number}=on\n")
        self.take("switch a feature on", Trigger.MANUAL, check="exit 0")

    def take(
        self,
        intent: str,
        trigger: Trigger,
        check: str = "",
        name: str | None = None,
        minutes: tuple[int, int] = (7, 55),
    ) -> None:
        """Advance the clock, skipping nights and weekends, and capture."""
        self.at += timedelta(minutes=self.dice.randint(*minutes))
        if self.at.hour >= 18:
            self.at = self.at.replace(hour=9, minute=self.dice.randint(0, 40)) + timedelta(
                days=3 if self.at.weekday() == 4 else 1
            )
        os.environ["GIT_COMMITTER_DATE"] = self.at.isoformat()
        agent = trigger is Trigger.AGENT
        command = f"pytest -q tests || {check}" if check else None
        self.write("pytest.sh", "exit 1\n")
        history = EnvHistory.open(str(self.root), workers="here", one_command=True)
        history.capture(
            intent,
            trigger=trigger,
            name=name,
            verify=command and command.replace("pytest -q", "sh pytest.sh"),
            actor=AGENT if agent else None,
            intent_source=IntentSource.AGENT if agent else IntentSource.GIVEN,
        )
        self.number += 1

    def edit(self, files: int) -> None:
        for place in self.dice.sample(
            sorted((self.root / "shop").iterdir()) + sorted((self.root / "web").iterdir()), files
        ):
            with place.open("a") as file:
                file.write(f"# {self.number} {self.dice.random()}\n" * self.dice.randint(1, 30))
        if self.dice.random() < 0.3:
            self.write(f"shop/part{self.number}.py", "pass\n" * self.dice.randint(10, 400))

    def database(self) -> None:
        with closing(sqlite3.connect(self.root / "shop.db")) as database, database:
            database.execute(
                "create table if not exists orders (id integer primary key, item text, note text)"
            )
            rows = (
                (f"item {n}", "x" * self.dice.randint(100, 900)) for n in range(self.dice.randint(80, 400))
            )
            database.executemany("insert into orders (item, note) values (?, ?)", rows)

    def python(self, name: str, version: str, size: int, *, instead: bool = False) -> None:
        """Write a Python package as pip installs it; `size` is in KiB."""
        site = ".venv/lib/python3.11/site-packages"
        if instead:
            for old in (self.root / site).glob(f"{name}-*.dist-info"):
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()
        self.write(
            f"{site}/{name}-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n",
        )
        self.write(f"{site}/{name}-{version}.dist-info/INSTALLER", "pip\n")
        self.write(f"{site}/{name}-{version}.dist-info/REQUESTED", "")
        for part, share in (("__init__.py", 0.1), ("core.py", 0.5), ("utils/more.py", 0.4)):
            self.bytes(f"{site}/{name}/{part}", size * share)

    def node(self, name: str, version: str, size: int) -> None:
        """Write a package as npm installs it; `size` is in KiB."""
        self.write(f"node_modules/{name}/package.json", json.dumps({"name": name, "version": version}))
        for part, share in (("index.js", 0.2), ("dist/all.js", 0.6), ("dist/all.js.map", 0.2)):
            self.bytes(f"node_modules/{name}/{part}", size * share)

    def bytes(self, path: str, kilobytes: float) -> None:
        # One repeated line: the file has the right size but compresses well.
        line = f"{path} {self.number} ".encode().ljust(1024, b".")
        self.repo.write(path, line * max(1, round(kilobytes)))

    def write(self, path: str, text: str) -> None:
        self.repo.write(path, text)
