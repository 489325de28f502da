"""Fixtures: the two original libraries, installed from the package index, next to our package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rules.source import CHECKOUT

PROGRAMS = Path(__file__).parent / "programs"
# Listed one by one (--no-deps), to install only what their checkpoints, agents and loops need.
PACKAGES = (
    *("praisonaiagents==1.7.17", "praisonai-code==0.1.16", "chimera-run==0.9.2.3"),
    *("openai", "httpx", "httpcore", "httpx2", "httpcore2", "anyio", "jiter", "distro", "sniffio", "h11"),
    *("certifi", "idna", "truststore", "rich", "markdown-it-py", "mdurl", "pygments", "pyyaml"),
    *(
        "pydantic==2.14.3",
        "pydantic-core==2.50.4",
        "annotated-types",
        "typing-extensions",
        "typing-inspection",
    ),
)

Told = dict[str, Any]
RunProgram = Callable[..., Told]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install both libraries into a directory and return it; skip the tests if they cannot be installed."""
    place = tmp_path_factory.mktemp("libraries")
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--target",
        str(place),
    ]
    done = subprocess.run([*words, *PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the libraries cannot be installed: {done.stderr.splitlines()[-1:]}")
    return place


@pytest.fixture
def run_program(libraries: Path, tmp_path: Path) -> RunProgram:
    """Return a function that runs a program with the libraries and returns the JSON of its last output line."""

    def run(name: str, *words: str) -> Told:
        workspace = tmp_path / "-".join((name, *words)) / "workspace"
        workspace.mkdir(parents=True)
        # Only the libraries and our package are added to the path.
        paths = os.pathsep.join((str(libraries), str(CHECKOUT)))
        settled = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OPENAI_API_KEY": "none"}
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / f"{name}.py"), str(workspace), *words],
            env={**os.environ, **settled, "PRAISONAI_TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told: Told = json.loads(done.stdout.splitlines()[-1])
        return told

    return run
