"""Run the code blocks of a page in one namespace, with our classes or the original ones, and print each result."""

import ast
import asyncio
import contextlib
import hashlib
import inspect
import io
import json
import os
import re
import signal
import sys
import textwrap
from pathlib import Path

workspace, whose, page = sys.argv[1:4]
os.environ["HOME"] = os.environ["CHIMERA_HOME"] = os.path.dirname(workspace)
os.environ["WHOSE"] = whose
PLACES = ("/path/to/project", "/tmp/project", "./my-project", "./my_project", "./project")
LONGEST = 60
BEFORE = """
from chimera.env.local import LocalEnvironment
env = LocalEnvironment(workdir={place!r})
env.setup()
"""


def blocks(text):
    for found in re.findall(r"^[ ]*```python[^\n]*\n(.*?)^[ ]*```", text, re.DOTALL | re.MULTILINE):
        source = textwrap.dedent(found)
        for place in PLACES:
            source = source.replace(place, workspace)
        yield source


def seen():
    files = sorted(path for path in Path(workspace).rglob("*") if path.is_file())
    own = (".git/", ".gitkeep", ".chimera", "chimera-clone-")
    names = [str(path.relative_to(workspace)) for path in files]
    return {
        name: hashlib.sha256(Path(workspace, name).read_bytes()).hexdigest()[:8]
        for name in names
        if not name.startswith(own) and "__pycache__" not in name
    }


def run(source, names):
    """Run a block; return 'done' or the class of its error."""
    try:
        signal.alarm(LONGEST)
        code = compile(source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()):
            # Code with a top-level 'await' evaluates to a coroutine.
            made = eval(code, names)
            if inspect.iscoroutine(made):
                asyncio.run(made)
    except BaseException as error:
        return type(error).__name__
    finally:
        signal.alarm(0)
    return "done"


def late(*_):
    raise TimeoutError


def main():
    signal.signal(signal.SIGALRM, late)
    os.chdir(workspace)
    Path("main.py").write_text("print('hello')\n")
    text = Path(page).read_text(encoding="utf-8")
    if whose == "ours" and "praisonaiagents.checkpoints" in text:
        text = text.replace("praisonaiagents.checkpoints", "git_envhist.compat.praisonai")
    names = {"__name__": "__page__"}
    if "chimera" in text:
        import swapped

        exec(BEFORE.format(place=workspace), names)
        if whose == "ours":
            swapped.swap()
    told = []
    for number, source in enumerate(blocks(text)):
        # Change a file between two examples, as between two turns of an agent.
        Path("between.txt").write_text(f"{number}\n")
        told.append([source.strip().splitlines()[0], run(source, names), seen()])
    print(json.dumps({"blocks": told}))


main()
