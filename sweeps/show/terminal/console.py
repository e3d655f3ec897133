"""A console that prints control characters as text, because the names in foreign studies may
contain any."""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(words: str) -> str:
    """Return the words with each control character as its escape, such as \\x1b."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], words)


class SafeConsole(Console):
    """A console for text that others wrote. Only the console itself writes escape sequences, for
    its own styles."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, without control characters in their texts."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text)
            yield Segment(text, segment.style, segment.control)
