"""The hooks of git that we answer, and what each causes: a kind of capture, or a push that rides along."""

from __future__ import annotations

from git_envhist.model import Trigger

EVENTS = {
    "post-commit": Trigger.COMMIT,
    "post-merge": Trigger.MERGE,
    "post-checkout": Trigger.CHECKOUT,
    "post-rewrite": Trigger.REWRITE,
}
RIDING = "pre-push"
"""Here nothing is captured: the history is pushed too, where `envhist.autoPush` says so."""
HOOKS = (*EVENTS, RIDING)
