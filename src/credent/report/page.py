"""One self-contained HTML page: styles, drawings and the table-sorting script inside, nothing fetched from anywhere.

A content-security policy in its head forbids the network and every script but the page's own, so that a page stays
harmless whatever text went into it. The same page gives the same bytes.

>>> from credent.report.parts import Note
>>> page = Page("A <run>", "two words", (Card("Accuracy", 0.98, "%"),), (Section("More", (Note("Text."),)),))
>>> "A &lt;run&gt;" in page.html(), '98.00<span class="unit">%</span>' in page.html()
(True, True)
"""

import base64
import hashlib
import os
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from credent.report.numbers import centre, figures
from credent.report.palette import css_variables
from credent.report.parts import Card, Figure, Part, Section, Table


@dataclass(frozen=True)
class Page:
    """A title, key numbers and sections; `html()` is the page as text, `write(path)` puts it on disk."""

    title: str
    subtitle: str = ""
    facts: tuple[Card, ...] = ()
    sections: tuple[Section, ...] = ()
    footer: str = ""

    def html(self) -> str:
        """The whole page."""
        return _environment().get_template("page.html").render(page=self)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page all or nothing: a reader, or a crash, sees the old file or the new one."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "w", encoding="utf-8", newline="\n") as file:
                file.write(self.html())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return target


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("credent.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figures": figures, "centre": centre, "digest": _digest, "rows_of": _rows}
    environment.globals |= {"css": _css()}
    environment.tests |= {
        "figure": lambda part: isinstance(part, Figure),
        "table": lambda part: isinstance(part, Table),
    }
    return environment


def _css() -> Markup:
    """The style sheet with the palette in front; dark only on screens, so that paper stays white."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{\n{css_variables(dark=True)}\n}} }}"
    sheet = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return Markup(f":root {{\n{css_variables(dark=False)}\n}}\n{dark}\n{sheet}")


def _digest(script: str) -> str:
    """What a content-security policy calls a script by: the hash of its text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _rows(parts: tuple[Part, ...]) -> list[list[Part]]:
    """Neighbouring figures together, so that they share a row where the screen is wide enough."""
    return [list(group) for _, group in groupby(parts, key=lambda part: isinstance(part, Figure))]
