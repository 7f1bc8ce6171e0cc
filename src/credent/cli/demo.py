"""`credent demo`: a page to open, in about a minute."""

from pathlib import Path
from typing import Annotated

import typer

from credent import __version__
from credent.cli.common import AsJson, guarded, say
from credent.demo import build


@guarded
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the page.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Train MAP and VI on the built-in digits and VI on two curves, and write a page to open. About a minute."""
    page, scores = build(progress=not as_json, footer=f"credent {__version__}")
    written = page.write(out / "page.html")
    plain = {name: {k: e.value for k, e in each.items()} for name, each in scores.items()}
    say({"page": str(written), "scores": plain}, as_json, f"open {written}")
