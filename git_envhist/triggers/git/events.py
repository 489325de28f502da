"""The hooks of git that we answer, and what kind of capture each causes."""

from __future__ import annotations

from git_envhist.model import Trigger

EVENTS = {
    "post-commit": Trigger.COMMIT,
    "post-merge": Trigger.MERGE,
    "post-checkout": Trigger.CHECKOUT,
    "post-rewrite": Trigger.REWRITE,
}
