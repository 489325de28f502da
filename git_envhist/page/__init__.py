"""A history as one file that a browser opens from disk."""

from git_envhist.page.document import BEGINNING, document

__all__ = ["BEGINNING", "document"]
