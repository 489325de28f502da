"""A real environment that npm and pip make, in as many copies as the wanted number of files needs.

The packages are what the registries have on the day, so figures of different days are not of the same files. The files
of each further copy end with the number of the copy: no program can store or restore two copies as one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

from tests.benchmarks.corpus import walk

NODE = (
    "next", "react", "react-dom", "typescript", "eslint", "vite", "webpack", "jest", "@babel/core",
    "@babel/preset-env", "storybook", "@angular/core", "@angular/cli", "@mui/material", "@mui/icons-material",
    "rxjs", "lodash", "date-fns", "aws-sdk", "prettier", "@types/node", "tailwindcss",
)  # fmt: skip
PYTHON = (
    "numpy", "pandas", "django", "scipy", "sqlalchemy", "matplotlib", "requests", "fastapi", "jupyterlab",
    "scikit-learn", "sympy", "boto3",
)  # fmt: skip
NPM = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
DONE = "complete"


def build_real(top: Path, files: int, kept: Path) -> None:
    """Write an environment of at least this many files; `kept` has the packages, or gets them."""
    if not (kept / DONE).exists():
        _install(kept)
    top.mkdir(parents=True)
    there = 0
    for number in count(1):
        copy = top / f"project{number}"
        shutil.copytree(kept / "app", copy, symlinks=True)
        there += _mark_files(copy, number)
        if there >= files:
            break
    (top / ".gitignore").write_text("node_modules\n.venv\n")
    (top / "main.py").write_text("print('an application')\n")
    for words in (
        ("init", "-q", "--template="),
        ("add", ".gitignore", "main.py"),
        ("commit", "-q", "-m", "sources"),
    ):
        subprocess.run(["git", *words], cwd=top, check=True)


def _install(kept: Path) -> None:
    app = kept / "app"
    app.mkdir(parents=True, exist_ok=True)
    (app / "package.json").write_text('{"name": "app", "version": "1.0.0", "private": true}\n')
    subprocess.run([*NPM, *NODE], cwd=app, check=True, stdin=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "venv", app / ".venv"], check=True)
    subprocess.run([app / ".venv/bin/pip", "install", "-q", *PYTHON], check=True, stdin=subprocess.DEVNULL)
    (kept / DONE).touch()


def _mark_files(copy: Path, number: int) -> int:
    """Add the number of a further copy to each of its files; return how many files there are."""
    files = 0
    for place, name in walk(copy):
        files += 1
        path = os.path.join(place, name)
        if number > 1 and not os.path.islink(path):
            with open(path, "ab") as file:
                file.write(b"\n%d" % number)
    return files
