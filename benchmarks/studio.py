"""How long after a gesture is PICASO's result on the screen?

A point of a set of 500 is dragged over the studio's board in headless Chromium, at sixty moves a second, while all six
methods answer as usual. Measured in the page itself, from the time stamp of the pointer's event to the end of the frame
that shows the card; expected: at most 50 ms at the median on two cores. The time that the server needs to compute is
reported beside it. The studio runs as ``picaset studio`` does, in a process of its own.

    python -m benchmarks.studio
    python -m benchmarks.studio --points 500 --moves 300 --browser /usr/bin/chromium

Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse
import math
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.measure import record

MEASURE = "picaset: gesture to result"
PATIENCE = 120_000
PAUSE = 1000 / 60


@contextmanager
def started() -> Iterator[str]:
    """The studio, as a person starts it; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "picaset", "studio", "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[2]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def drag(page: Page, moves: int) -> dict[str, float]:
    """Drag one point along a circle; the quartiles of what the page measured, and how often it had a result."""
    page.mouse.click(*middle_of_board(page, "add"))
    middle = middle_of_board(page, "move")
    page.mouse.move(*middle)
    page.mouse.down()
    page.evaluate(f"performance.clearMeasures('{MEASURE}')")
    for index in range(moves):
        turned = index / 20
        page.mouse.move(middle[0] + 60 * math.sin(turned), middle[1] + 60 * (1 - math.cos(turned)))
        page.wait_for_timeout(PAUSE)
    page.mouse.up()
    found: list[float] = page.evaluate(f"performance.getEntriesByName('{MEASURE}').map((entry) => entry.duration)")
    low, median, high = statistics.quantiles(found, n=4)
    shown = page.inner_text('[data-method="picaso"] .time')
    return {
        "results": len(found),
        "milliseconds": median,
        "lower_quartile": low,
        "upper_quartile": high,
        "computing": float(shown.split()[0]),
    }


def middle_of_board(page: Page, tool: str) -> tuple[float, float]:
    """Where the middle of the board is on the screen, once the tool is chosen."""
    page.check(f'#tools input[value="{tool}"]', force=True)
    page.locator("#board").scroll_into_view_if_needed()
    box: Any = page.locator("#board").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def set_points(page: Page, count: int) -> None:
    """A table of four clusters, pasted."""
    points = draw(count)
    page.click("#paste")
    page.fill("#paste-text", "\n".join(f"{x:.4f},{y:.4f}" for x, y in points))
    page.click("#paste-dialog button[value=take]")
    page.wait_for_function(f"() => document.querySelector('#board-state').textContent === '{count} points'")


def draw(count: int) -> list[list[float]]:
    from picaset.lab.data.gaussian_mixtures import draw_mixtures, generator_for

    points, _ = draw_mixtures(1, count, generator=generator_for(1, 0))
    return points[0].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[100, 500, 2000], help="sizes of the set")
    parser.add_argument("--moves", type=int, default=300, help="moves of the pointer")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="the program of the browser")
    arguments = parser.parse_args()
    rows = list[dict[str, object]]()
    print(f"{'points':>8} {'results':>8} {'median ms':>10} {'quartiles':>16} {'computing ms':>13}")
    with started() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"], timeout=PATIENCE)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/#cluster")
        page.wait_for_function("() => document.querySelectorAll('.card .badge.good').length > 0")
        for count in arguments.points:
            set_points(page, count - 1)  # the one that is dragged is added
            page.wait_for_timeout(1000)
            found = drag(page, arguments.moves)
            rows.append({"points": count, **found})
            quartiles = f"{found['lower_quartile']:.1f} to {found['upper_quartile']:.1f}"
            print(
                f"{count:8} {found['results']:8} {found['milliseconds']:10.1f} {quartiles:>16} "
                f"{found['computing']:13.1f}"
            )
        browser.close()
    print()
    record("studio", rows, {})


if __name__ == "__main__":
    main()
