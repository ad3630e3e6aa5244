"""How long does it take from a gesture until PICASO's result is on the screen?

A point is dragged over the studio's board in headless Chromium, at sixty moves a second, while all six methods respond
as usual. The page measures the time from the time stamp of the pointer event to the end of the frame that shows the
result. Expected: a median of at most 50 ms with 500 points on two cores. The computing time of the server is reported
beside it. The studio runs in a separate process, as ``picaset studio`` does.

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
TIMEOUT = 120_000
"""Milliseconds to wait for the browser and the page."""
MOVE_INTERVAL = 1000 / 60
"""Milliseconds between two moves of the pointer."""


@contextmanager
def running_studio() -> Iterator[str]:
    """Run ``picaset studio`` and yield its address."""
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
    """Drag one point along a circle; return the quartiles of the measured times and the number of results."""
    page.mouse.click(*board_centre(page, "add"))
    centre = board_centre(page, "move")
    page.mouse.move(*centre)
    page.mouse.down()
    page.evaluate(f"performance.clearMeasures('{MEASURE}')")
    for index in range(moves):
        angle = index / 20
        page.mouse.move(centre[0] + 60 * math.sin(angle), centre[1] + 60 * (1 - math.cos(angle)))
        page.wait_for_timeout(MOVE_INTERVAL)
    page.mouse.up()
    durations: list[float] = page.evaluate(f"performance.getEntriesByName('{MEASURE}').map((entry) => entry.duration)")
    low, median, high = statistics.quantiles(durations, n=4)
    computing = page.inner_text('[data-method="picaso"] .time')
    return {
        "results": len(durations),
        "milliseconds": median,
        "lower_quartile": low,
        "upper_quartile": high,
        "computing": float(computing.split()[0]),
    }


def board_centre(page: Page, tool: str) -> tuple[float, float]:
    """Choose a tool and return the centre of the board on the screen."""
    page.check(f'#tools input[value="{tool}"]', force=True)
    page.locator("#board").scroll_into_view_if_needed()
    box: Any = page.locator("#board").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def set_points(page: Page, count: int) -> None:
    """Paste a table of points from four clusters."""
    points = draw(count)
    page.click("#paste")
    page.fill("#paste-text", "\n".join(f"{x:.4f},{y:.4f}" for x, y in points))
    page.click("#paste-dialog button[value=take]")
    page.wait_for_function(f"() => document.querySelector('#board-state').textContent === '{count} points'")


def draw(count: int) -> list[list[float]]:
    from picaset.lab.data.gaussian_mixtures import draw_mixtures, seeded_generator

    points, _ = draw_mixtures(1, count, generator=seeded_generator(1, 0))
    return points[0].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[100, 500, 2000], help="numbers of points")
    parser.add_argument("--moves", type=int, default=300, help="number of pointer moves")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="path of Chromium")
    arguments = parser.parse_args()
    rows = list[dict[str, object]]()
    print(f"{'points':>8} {'results':>8} {'median ms':>10} {'quartiles':>16} {'computing ms':>13}")
    with running_studio() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"], timeout=TIMEOUT)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(TIMEOUT)
        page.goto(f"{address}/#cluster")
        page.wait_for_function("() => document.querySelectorAll('.card .badge.good').length > 0")
        for count in arguments.points:
            set_points(page, count - 1)  # dragging adds one
            page.wait_for_timeout(1000)
            result = drag(page, arguments.moves)
            rows.append({"points": count, **result})
            quartiles = f"{result['lower_quartile']:.1f} to {result['upper_quartile']:.1f}"
            print(
                f"{count:8} {result['results']:8} {result['milliseconds']:10.1f} {quartiles:>16} "
                f"{result['computing']:13.1f}"
            )
        browser.close()
    print()
    record("studio", rows, {})


if __name__ == "__main__":
    main()
