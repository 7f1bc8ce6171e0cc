"""Code blocks in README and docs run as written; each page is one story, told in order."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    story = {"__name__": "story"}
    for block in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        line = page.read_text()[: block.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + block.group(1), str(page), "exec")
        exec(code, story)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"
