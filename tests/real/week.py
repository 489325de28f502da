"""Work through a week on two real projects and write down how each view shows it.

`python -m tests.real.week DIRECTORY [--only shop|blog]` installs real packages by npm and pip, switches branches, edits
`.env.local`, loses rows, breaks an upgrade and restores the state before it. Then it writes the output of each view to
DIRECTORY/<project>/<view>.txt, for a reader who has not seen this script, and checks that a reader can answer two
questions from the list alone: when did the upgrade come, and which snapshot was good. The week has made-up times, set
by GIT_COMMITTER_DATE. Hooks do not obey this variable; they run under libfaketime (Debian's package `faketime`) where
that is installed, and otherwise at the real time, which puts their lines under other days.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import sealed_environment
from tests.integrations.hooks import git_dir, log_of, wait_for_runs
from tests.real.tools import call, tools
from tests.support.programs import make_programs
from tests.support.repository import Repo, make_repo
from tests.tui.screen import Screen

DAYS = {name: f"2026-11-{day}" for day, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri"), start=9)}
SCREENS = ((80, 24), (140, 40))
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PAGE_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom")

LAYOUT = """\
export const metadata = { title: 'Shop' }
export default function Layout({ children }) {
  return <html lang="en"><body>{children}</body></html>
}
"""
PRICE = """\
export default function Price({ amount, currency }) {
  return <b>{amount.toFixed(2)} {currency.toUpperCase()}</b>
}
Price.defaultProps = { currency: 'eur' }
"""
PRICE_FIXED = """\
export default function Price({ amount, currency = 'eur' }) {
  return <b>{amount.toFixed(2)} {currency.toUpperCase()}</b>
}
"""
PAGE = """\
import Price from './price'
export default function Page() {
  return <main><h1>Shop</h1><Price amount={12} /></main>
}
"""
CHECKOUT = """\
import { z } from 'zod'
const Order = z.object({ id: z.number() })
export default function Checkout() {
  return <p>Order {Order.parse({ id: 7 }).id}</p>
}
"""
SHOP_VARIABLES = "API_URL=http://localhost:4000\nSTRIPE_SECRET_KEY=sk_test_51week0000000000000000\n"
SHOP_PACKAGE = {
    "name": "shop", "version": "1.0.0", "private": True,
    "scripts": {"build": "next build", "dev": "next dev"},
    "dependencies": {"next": "14.2.35", "react": "18.3.1", "react-dom": "18.3.1"},
}  # fmt: skip

MODELS = """\
from django.db import models
from django.utils.timezone import utc


class Post(models.Model):
    title = models.CharField(max_length=80)
    created = models.DateTimeField(null=True)
"""
TAG = """

class Tag(models.Model):
    name = models.CharField(max_length=30)
"""
SETTINGS = """
INSTALLED_APPS += ["posts"]
for line in (BASE_DIR / ".env.local").read_text().splitlines():
    name, _, value = line.partition("=")
    globals()[name] = value
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
ROWS = "from posts.models import Post; Post.objects.bulk_create(Post(title=f'post {n}') for n in range(120))"
LOSE_ROWS = "from posts.models import Post; Post.objects.filter(id__gt=50).delete()"
BLOG_VARIABLES = "SITE_NAME=Blog\nMAIL_HOST=localhost\n"


@dataclass
class Person:
    """A person who works on one project, at made-up times."""

    repo: Repo
    variables: dict[str, str]
    done: list[str] = field(default_factory=list)

    def at(self, day: str, time: str, words: str) -> None:
        """Set the time of the next steps, and note what they are."""
        moment = f"{DAYS[day]}T{time}:00+00:00"
        for name in ("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE"):
            self.repo.env[name] = self.variables[name] = moment
        self.done.append(f"{day} {time}  {words}")
        print(self.done[-1], flush=True)

    def git(self, *words: str) -> None:
        """Run git, and wait for the captures of its hooks."""
        runs = len(log_of(self.repo))
        self.repo.execute("git", *words, env=self.fake)
        if words[0] in ("commit", "checkout") and (git_dir(self.repo) / "hooks/post-commit").exists():
            wait_for_runs(self.repo, runs + 1)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    @property
    def fake(self) -> dict[str, str]:
        """The variables under which a program, and each one that it starts, sees the made-up time."""
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
        if library is None:
            return {}
        at = self.variables["GIT_COMMITTER_DATE"][:19].replace("T", " ")
        return {
            "LD_PRELOAD": str(library), "FAKETIME": f"@{at}", "NO_FAKE_STAT": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def tool(self, *words: str, check: bool = True) -> int:
        """Run a program of the project."""
        return call(self.repo.path, self.variables, *words, check=check).status

    def ours(self, program: str, *words: str, check: bool = True) -> None:
        self.repo.run(program, *words, check=check)

    def edit(self, path: str, before: str, after: str) -> None:
        text = self.repo.read(path).decode()
        assert before in text, (path, before)
        self.repo.write(path, text.replace(before, after))


def start_shop(shop: Person) -> None:
    """Monday: a shop on Next 14, built and captured."""
    shop.at(
        "Mon",
        "09:05",
        "new project on next 14.2 and react 18; npm install; commit; hooks installed; build passes",
    )
    shop.repo.write("package.json", json.dumps(SHOP_PACKAGE, indent=2) + "\n")
    shop.repo.write(".gitignore", "node_modules/\n.next/\n.env*\n")
    shop.repo.write(".env.local", SHOP_VARIABLES, mode=0o600)
    for path, text in (("layout.js", LAYOUT), ("price.js", PRICE), ("page.js", PAGE)):
        shop.repo.write(f"app/{path}", text)
    shop.tool("npm", "install", "--silent")
    shop.commit("add the shop")
    shop.ours("envlog", "install")
    shop.ours("envlog", "capture", "shop on next 14", "--verify", "npm run build", "--name", "stable")


def week_of_shop(shop: Person) -> None:
    """Tuesday to Friday: a branch, a broken upgrade, the restore, the upgrade again, a lost key."""
    start_shop(shop)
    shop.at(
        "Tue",
        "10:20",
        "branch checkout; npm install zod; a checkout page; API_URL changed in .env.local; commit",
    )
    shop.git("checkout", "-q", "-b", "checkout")
    shop.tool("npm", "install", "--silent", "zod@3.25.76")
    shop.repo.write("app/checkout/page.js", CHECKOUT)
    shop.edit(".env.local", "http://localhost:4000", "http://localhost:4100")
    shop.commit("add a checkout page")
    shop.at("Tue", "16:45", "back on main; npm install, so zod is removed")
    shop.git("checkout", "-q", "main")
    shop.tool("npm", "install", "--silent")
    shop.ours("envlog", "capture", "main again, without zod")
    shop.at("Wed", "09:30", "npm install next@15 react@19 react-dom@19; the build fails")
    shop.tool("npm", "install", "--silent", "next@15.5.9", "react@19.2.3", "react-dom@19.2.3")
    shop.ours("envlog", "capture", "upgrade to next 15", "--verify", "npm run build")
    shop.at("Wed", "10:10", "git envrestore stable: back to next 14")
    shop.ours("envrestore", "stable")
    shop.at("Thu", "09:15", "the upgrade again, with price.js fixed for react 19; the build passes; commit")
    shop.tool("npm", "install", "--silent", "next@15.5.9", "react@19.2.3", "react-dom@19.2.3")
    shop.repo.write("app/price.js", PRICE_FIXED)
    shop.commit("upgrade to next 15")
    shop.ours("envlog", "capture", "next 15 works", "--verify", "npm run build", "--name", "next15")
    shop.at("Fri", "11:00", "STRIPE_SECRET_KEY removed from .env.local by mistake, LOG_LEVEL added")
    shop.repo.write(".env.local", "API_URL=http://localhost:4100\nLOG_LEVEL=debug\n", mode=0o600)
    shop.ours("envlog", "capture", "clean up variables")
    shop.at("Fri", "14:30", "git envrestore next15 -- .env.local: the key is back")
    shop.ours("envrestore", "next15", "--", ".env.local")


def start_blog(blog: Person) -> None:
    """Monday: a blog on Django 4.2 with 120 posts."""
    blog.at("Mon", "09:00", "new project on django 4.2; 120 posts in db.sqlite3; commit; hooks; check passes")
    blog.tool(sys.executable, "-m", "venv", ".venv")
    pip(blog, "install", "django==4.2.26")
    blog.repo.write("requirements.txt", "django==4.2.26\n")
    blog.repo.write(".gitignore", ".venv/\n*.sqlite3\n.env*\n__pycache__/\n")
    blog.repo.write(".env.local", BLOG_VARIABLES, mode=0o600)
    blog.tool(".venv/bin/django-admin", "startproject", "blog", ".")
    manage(blog, "startapp", "posts")
    with open(blog.repo.path / "blog/settings.py", "a") as settings:
        settings.write(SETTINGS)
    blog.repo.write("posts/models.py", MODELS)
    for words in (("makemigrations", "-v0"), ("migrate", "-v0"), ("shell", "-c", ROWS)):
        manage(blog, *words)
    blog.commit("add the blog")
    blog.ours("envlog", "install")
    blog.ours("envlog", "capture", "blog on django 4.2", "--verify", CHECK, "--name", "stable")


CHECK = ".venv/bin/python manage.py check"


def week_of_blog(blog: Person) -> None:
    """Tuesday to Friday: packages, a branch with a migration, lost rows, a broken upgrade, the upgrade again."""
    start_blog(blog)
    blog.at("Tue", "09:40", "pip install requests numpy; commit")
    pip(blog, "install", "requests==2.32.5", "numpy==2.3.5")
    blog.repo.write("requirements.txt", "django==4.2.26\nrequests==2.32.5\nnumpy==2.3.5\n")
    blog.commit("fetch posts by requests")
    blog.at(
        "Tue",
        "15:00",
        "branch tags; a new table by a migration; commit; a script deletes 70 posts by mistake",
    )
    blog.git("checkout", "-q", "-b", "tags")
    blog.repo.write("posts/models.py", MODELS + TAG)
    manage(blog, "makemigrations", "-v0")
    manage(blog, "migrate", "-v0")
    blog.commit("add tags")
    manage(blog, "shell", "-c", LOSE_ROWS)
    blog.ours("envlog", "capture", "tags and a cleaning script")
    blog.at("Wed", "09:10", "the posts are missed: git envrestore stable -- db.sqlite3; migrate again")
    blog.ours("envrestore", "stable", "--", "db.sqlite3")
    manage(blog, "migrate", "-v0")
    blog.ours("envlog", "capture", "posts are back", "--verify", CHECK)
    blog.at("Wed", "14:20", "back on main, where posts/models.py has no tags")
    blog.git("checkout", "-q", "main")
    blog.at("Thu", "10:00", "pip install django==5.2: manage.py check fails")
    pip(blog, "install", "django==5.2.8")
    blog.ours("envlog", "capture", "upgrade to django 5.2", "--verify", CHECK)
    blog.at("Thu", "10:30", "git envlog undo: back to django 4.2")
    blog.ours("envlog", "undo")
    blog.at("Fri", "09:20", "the import fixed, the upgrade again, check passes; MAIL_HOST removed; commit")
    blog.edit("posts/models.py", "from django.utils.timezone import utc\n", "")
    pip(blog, "install", "django==5.2.8")
    blog.edit("requirements.txt", "4.2.26", "5.2.8")
    blog.repo.write(".env.local", "SITE_NAME=Blog\nSMTP_URL=smtp://localhost\n", mode=0o600)
    blog.commit("upgrade to django 5.2")
    blog.ours("envlog", "capture", "django 5.2 works", "--verify", CHECK, "--name", "django5")


def pip(blog: Person, *words: str) -> None:
    blog.tool(".venv/bin/python", "-m", "pip", *words, "-q")


def manage(blog: Person, *words: str) -> None:
    blog.tool(".venv/bin/python", "manage.py", *words)


@dataclass(frozen=True)
class Week:
    """The week of one project, and the answers that its list must give."""

    work: Callable[[Person], None]
    upgraded: str
    """The start of the summary of each line that has the upgrade."""
    good: str
    """The intent of the newest snapshot that passed."""


WEEKS = {
    "shop": Week(week_of_shop, "npm: next 14.2.35 → 15.5.9, react 18.3.1 → 19.2.3", "next 15 works"),
    "blog": Week(week_of_blog, "pip: django 4.2.26 → 5.2.8", "django 5.2 works"),
}


def write_views(person: Person, place: Path) -> None:
    """Write the output of each view, as a terminal of 100 columns shows it."""
    place.mkdir(parents=True, exist_ok=True)
    upgrade = newest(person.repo, "upgrade to")
    first = person.repo.run("envlog", "--reverse", "--format=%h").out.split()[0]
    views = {
        "list": ("envlog",), "list-unfolded": ("envlog", "--no-fold"), "list-all": ("envlog", "--all"),
        "list-graph": ("envlog", "--graph"), "list-oneline": ("envlog", "--oneline"),
        "list-stat": ("envlog", "--stat", "-3"), "list-full": ("envlog", "--full"), "show": ("envlog", "show"),
        "show-upgrade": ("envlog", "show", upgrade), "diff-upgrade": ("envdiff", f"{upgrade}~..{upgrade}"),
        "diff-week": ("envdiff", f"{first}..@"), "diff-now": ("envdiff",), "restore": ("envrestore",),
        "restore-dry": ("envrestore", "-n", "stable"), "status": ("envlog", "status"),
        "good": ("envlog", "show", "good"),
        "recent": ("envlog", "recent"), "git-log-all": ("git", "log", "--all", "--oneline"),
    }  # fmt: skip
    for name, words in views.items():
        columns = {"COLUMNS": "100"}
        run = person.repo.execute if words[0] == "git" else person.repo.run
        done = run(words[0], *words[1:], check=False, env=columns)
        text = f"$ {' '.join(words)}\n{done.out}{done.err}[{done.status}]\n"
        (place / f"{name}.txt").write_text(text, "utf-8", "surrogateescape")
    write_screens(person, place)
    write_page(person, place)


def write_screens(person: Person, place: Path) -> None:
    """Write what the terminal browser shows."""
    if shutil.which("tmux", path=person.repo.env["PATH"]) is None:
        print("the terminal browser is skipped: tmux is not installed")
        return
    for columns, lines in SCREENS:
        screen = Screen(
            person.repo.path,
            "git-envlog browse",
            person.repo.env,
            columns,
            lines,
            f"week{os.getpid()}-{columns}",
        )
        try:
            screen.see("Head:")
            (place / f"browse-{columns}.txt").write_text("\n".join(screen.lines()) + "\n", "utf-8")
        finally:
            screen.close()


def write_page(person: Person, place: Path) -> None:
    """Write the HTML page, and its text as a browser renders it."""
    page = place / "page.html"
    person.ours("envlog", "--html", str(page))
    program = next(filter(None, (shutil.which(name) for name in CHROMIUM)), None)
    if program is None:
        print("the text of the page is skipped: chromium is not installed")
        return
    words = [program, *PAGE_OPTIONS, page.as_uri()]
    done = subprocess.run(words, capture_output=True, check=True, timeout=120)
    (place / "page.txt").write_text(text_of(done.stdout.decode("utf-8")), "utf-8")
    shot = [
        program,
        *PAGE_OPTIONS[:-1],
        "--window-size=1280,1000",
        f"--screenshot={place}/page.png",
        page.as_uri(),
    ]
    subprocess.run(shot, capture_output=True, check=True, timeout=120)


def text_of(markup: str) -> str:
    """Return the text of a rendered page, one line per block."""
    body = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>", "", markup.partition("<body")[2])
    body = re.sub(r"</(li|p|div|h[1-6]|tr|dt|dd|section|button|summary|header)>", "\n", body)
    lines = (" ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in body.split("\n"))
    return "\n".join(filter(None, lines)) + "\n"


def newest(repo: Repo, intent: str) -> str:
    return repo.run(
        "envlog", "-1", "--grep", intent, "--trigger=manual", "--format=%h", check=True
    ).out.strip()


def unanswered(person: Person, week: Week) -> list[str]:
    """Return the questions that the list does not answer."""
    wrong = []
    listed = person.repo.run(
        "envlog", "--format=%(time)%x09%(verdict)%x09%(title)%x09%(story)", check=True
    ).out
    lines = [line.split("\t") for line in listed.splitlines()]
    if not any(line[3].startswith(week.upgraded) for line in lines):
        wrong.append(f"no summary begins with {week.upgraded!r}")
    good = person.repo.run("envlog", "-1", "--verdict=pass", "--format=%(title)", check=True).out.strip()
    if good != week.good:
        wrong.append(f"the newest that passed is {good!r}, not {week.good!r}")
    return wrong


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("directory", type=Path)
    words.add_argument("--only", choices=tuple(WEEKS))
    options = words.parse_args()
    wrong: list[str] = []
    for name, week in WEEKS.items():
        if options.only in (None, name):
            wrong += live(name, week, options.directory.resolve() / name)
    print("\n".join(wrong) or "the list answers both questions for each project")
    return 1 if wrong else 0


def live(name: str, week: Week, place: Path) -> list[str]:
    """Work through one week; return what its list does not answer."""
    with tempfile.TemporaryDirectory(prefix="envhist-week-") as above:
        programs, home = Path(above, "programs"), Path(above, "home")
        programs.mkdir()
        home.mkdir()
        os.environ["PATH"] = os.pathsep.join((str(make_programs(programs)), os.environ["PATH"]))
        os.environ.update(sealed_environment(home))
        os.umask(0o022)
        variables = {**tools(Path(tempfile.gettempdir(), "envhist-week-caches")), "PATH": os.environ["PATH"]}
        variables["NEXT_TELEMETRY_DISABLED"] = "1"
        person = Person(make_repo(Path(above, name), commit=False), variables)
        person.repo.env["NEXT_TELEMETRY_DISABLED"] = "1"
        week.work(person)
        write_views(person, place)
        (place / "SCRIPT.txt").write_text("\n".join(person.done) + "\n", "utf-8")
        return [f"{name}: {one}" for one in unanswered(person, week)]


if __name__ == "__main__":
    sys.exit(main())
