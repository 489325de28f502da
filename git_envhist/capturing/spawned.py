"""A worker in an interpreter of its own, for a host program that must not be forked."""

from __future__ import annotations

import sys
from typing import Any, cast

from git_envhist.capture.lines import receive, serve
from git_envhist.capture.pool import SharedCounters
from git_envhist.capturing.worker import CaptureWorker


def main(arguments: list[str]) -> None:
    """Serve a host program that must not be forked: descriptors come as arguments, the job as the first frame."""
    asking, answering, counters, reading, writing, workers, number = map(int, arguments)
    shared = SharedCounters(workers, (counters, reading, writing))
    try:
        job = dict(cast(tuple[tuple[str, Any], ...], receive(asking)))
    except EOFError:
        return  # whoever asked was stopped before it could say what for
    serve(lambda: CaptureWorker(job, shared, number), asking, answering)


if __name__ == "__main__":
    main(sys.argv[1:])
