"""Run `python -m git_envhist.compat.workbench`, for machines without our programs on the PATH."""

from __future__ import annotations

import sys

from git_envhist.compat.workbench import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
