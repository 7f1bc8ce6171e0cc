import hashlib
import os
import re
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from credent.report import Card, Estimate, Page, comparison_page, run_page


class Outline(HTMLParser):
    """Every tag with its attributes, and the text of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)

    def named(self, *names):
        return [attrs for tag, attrs in self.tags if tag in names]


@pytest.fixture(scope="module", params=["run", "comparison"])
def html(request):
    return request.getfixturevalue(request.param).html()


def test_text_is_escaped(run):
    html = run.html()
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)") == 2  # title and heading
    assert "Gaussian &amp; friends" in html
    assert "<b>" not in html
    assert "<i>" not in html
    assert len(Outline(html).named("script")) == 1


def test_nothing_is_fetched(html):
    for attrs in (attrs for _, attrs in Outline(html).tags):
        for name in ("src", "href", "xlink:href", "srcset", "action", "poster"):
            assert (attrs.get(name) or "#").startswith(("#", "data:")), attrs
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    addresses = set(re.findall(r"https?://[^\"<\s]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_policy_allows_the_pages_own_script_alone(html):
    outline = Outline(html)
    (policy,) = [meta["content"] for meta in outline.named("meta") if "http-equiv" in meta]
    (script,) = outline.scripts
    assert f"script-src 'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")


def test_a_screen_reader_finds_its_way(html):
    outline = Outline(html)
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(attrs.get("aria-label") and attrs["role"] == "img" for attrs in outline.named("svg"))
    assert all(attrs.get("alt") for attrs in outline.named("img"))
    assert all(attrs.get("scope") in ("col", "row") for attrs in outline.named("th"))
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    pointed = {attrs[key] for _, attrs in outline.tags for key in ("aria-labelledby",) if key in attrs}
    pointed |= {attrs["href"][1:] for attrs in outline.named("a", "use")}
    assert pointed <= set(ids)
    assert outline.named("html")[0]["lang"] == "en"


def test_missing_numbers_are_dashes(html):
    visible = re.sub(r"<style>.*?</style>|<script>.*?</script>|base64,[^\"]*", "", html, flags=re.S)
    assert not re.search(r"\b(nan|NaN|None)\b", visible)
    assert ">–<" in visible


def test_cards_carry_value_unit_and_meaning():
    html = run_page("t", {"ece": Estimate(0.0123, 0.0008), "nll": 0.0812, "accuracy": None}).html()
    assert '1.23<span class="unit"> ± 0.08%</span>' in html
    assert '0.0812<span class="unit"> nats</span>' in html
    assert '<dd class="value">–</dd>' in html
    assert html.count("lower is better") == 2
    assert "says what chance does" in html


def test_comparison_names_the_leader_and_marks_the_best():
    page = comparison_page("t", {"VI": {"nll": 0.08, "odd": 1.0}, "MAP": {"nll": 0.11}, "SGLD": {"nll": float("nan")}})
    assert page.facts == (Card("Best: Surprise (NLL)", 0.08, "nats", page.facts[0].meaning),)
    assert page.facts[0].meaning.startswith("VI leads.")
    html = page.html()
    assert re.findall(r'<td data-value="([^"]*)" class="best">', html) == ["0.08"]
    assert html.count('<td data-value=""') == 3  # SGLD's NaN, and `odd` where it was not measured


def test_a_bare_page_is_a_page():
    outline = Outline(Page("t").html())
    assert not outline.named("nav", "dl", "table")


def test_bytes_do_not_depend_on_the_process_and_no_pyplot_is_loaded():
    code = (
        "import sys, hashlib; from credent.report import plots, run_page;"
        "page = run_page('t', {'nll': 1.0}, [plots.risk_coverage({'a': ([0, 1], [0, 1])})]);"
        "assert 'matplotlib.pyplot' not in sys.modules;"
        "print(hashlib.sha256(page.html().encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_write_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "page.html"
    assert Page("old").write(path) == path
    before = path.read_bytes()
    assert before.decode() == Page("old").html()
    calls = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))

    def fail(source, target):
        calls.append("replace")
        raise OSError("disk gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk gone"):
        Page("new").write(path)
    assert calls == ["fsync", "replace"]
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
