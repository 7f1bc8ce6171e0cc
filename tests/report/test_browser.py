"""The page as a browser shows it: no sideways scrolling, no clipped labels, light and dark, and tables that sort."""

import base64
import json
import re
import subprocess
from pathlib import Path

import matplotlib.image
import pytest

from credent.report.palette import COLOURS

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM} to open the page with")

PROBE = """<script>addEventListener("load", () => {
  const root = document.documentElement;
  const clipped = [];
  for (const svg of document.querySelectorAll("svg.plot")) {
    const frame = svg.closest(".card").getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left || box.right > frame.right || box.bottom > frame.bottom) clipped.push(text.textContent);
    }
  }
  const tiny = [...document.querySelectorAll("svg text")].map((text) => text.getBoundingClientRect().height);
  const table = document.querySelector("table.sortable");
  const order = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
  const orders = [order()];
  const button = table.tHead.rows[0].cells[2]?.querySelector("button");
  for (const _ of [1, 2]) { button?.click(); orders.push(order()); }
  const sorted = table.querySelector("[aria-sort]")?.getAttribute("aria-sort");
  parent.postMessage({
    inner: innerWidth, scroll: root.scrollWidth, clipped, least: Math.min(...tiny), orders, sorted,
  }, "*");
});</script>"""


FRAME = """<!doctype html><iframe src="page.html" style="width: {width}px; height: 1600px"></iframe>
<script>addEventListener("message", (event) => {{ document.title = btoa(JSON.stringify(event.data)); }});</script>"""


def chromium(folder, page, *flags):
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, (folder / page).as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def probed(folder, page, width):
    """What the probe saw in a frame of that width, since the browser's own window is never narrower than 500 px."""
    html = page.html().replace("<head>", "<head>" + PROBE, 1)  # before the page's policy, which would forbid it
    (folder / "page.html").write_text(html, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    dom = chromium(folder, "frame.html", "--virtual-time-budget=2000", "--dump-dom")
    found = re.search(r"<title>([^<]+)</title>", dom)
    assert found, "the page did not finish loading"
    return json.loads(base64.b64decode(found[1]))


@pytest.mark.parametrize("name", ["run", "comparison"])
def test_a_phone_shows_all_of_it(tmp_path, request, name):
    seen = probed(tmp_path, request.getfixturevalue(name), 390)
    assert seen["inner"] == 390
    assert seen["scroll"] <= 390
    assert seen["clipped"] == []
    assert seen["least"] >= 10  # the line box of letters about 9 pixels tall


def test_tables_sort_by_value_with_the_missing_last(tmp_path, comparison):
    seen = probed(tmp_path, comparison, 1280)
    long = "a method with a name that does not fit anywhere"
    assert seen["clipped"] == []
    assert seen["scroll"] <= 1280
    assert seen["orders"] == [["VI", long, "MAP"], ["VI", "MAP", long], ["MAP", "VI", long]]
    assert seen["sorted"] == "descending"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_light_and_dark_are_painted(tmp_path, run, width, dark):
    shot = tmp_path / "shot.png"
    run.write(tmp_path / "page.html")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    chromium(tmp_path, "page.html", f"--window-size={width},1600", f"--screenshot={shot}", scheme)
    pixels = matplotlib.image.imread(shot)[..., :3]
    assert pixels.shape[:2] == (1600, width)
    ground = [int(COLOURS["page"][dark][i : i + 2], 16) / 255 for i in (1, 3, 5)]
    assert pixels[2, 2] == pytest.approx(ground, abs=2 / 255)
    away = abs(pixels - pixels[2, 2]).max(-1) > 0.3
    assert 0.01 < away.mean() < 0.5  # letters and lines, neither blank nor flooded
