"""Text for the screen: the only type of text that the browser shows, without anything that could command a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text as Styled

from git_envhist.spelling import for_people

if TYPE_CHECKING:
    # The type of what is made of such texts as well: rich makes its own of them.
    from rich.text import Text
else:

    class Text(Styled):
        """A styled text that spells out every control character but newlines and tabs."""

        def __init__(self, text: str = "", *styled: Any, **more: Any) -> None:
            super().__init__(for_people(text), *styled, **more)

        def append(self, text: Any, style: Any = None) -> Styled:
            """Add a text at the end."""
            return super().append(for_people(text) if isinstance(text, str) else text, style)


__all__ = ["Text"]
