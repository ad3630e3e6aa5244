"""Take the screenshots of ``docs/studio.md`` in headless Chromium.

    python -m benchmarks.studio_pictures
    python -m benchmarks.studio_pictures --rooms odd scenes --colours dark --width 390 --out /tmp/pictures

Writes ``studio_<room>.png`` for every room of the studio whose weights are installed.
"""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.studio import TIMEOUT, running_studio

SETTLING_TIME = 3000
"""Milliseconds after which a room no longer changes by itself."""


def push_points(page: Page) -> None:
    page.click("#push")
    page.wait_for_timeout(SETTLING_TIME)
    page.wait_for_function("() => !document.querySelector('#room-cluster').textContent.includes('waiting')")
    if "This took longer" in page.inner_text("#room-cluster"):
        raise SystemExit("a method did not finish in its time limit: take the screenshots while the machine is idle.")


def turn_away(page: Page) -> None:
    page.focus("#view-dial")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    page.click("#view-turn")
    page.wait_for_function("() => document.querySelector('#room-viewpoints').textContent.includes('Full turn')")


def reveal(page: Page) -> None:
    page.check("#odd-reveal")


def point_at_object(page: Page) -> None:
    page.select_option("#scene-objects", "6")
    page.wait_for_function("() => document.querySelectorAll('#scene-marks g').length >= 6")
    page.locator("#scene-list button").first.hover()


def wait_for_tables(page: Page) -> None:
    for part in ("#runs-tables table", "#runs-list li", "#runs-chart canvas", "#runs-settings table"):
        page.wait_for_selector(part)


GESTURES: dict[str, Callable[[Page], None]] = {
    "cluster": push_points,
    "viewpoints": turn_away,
    "odd": reveal,
    "scenes": point_at_object,
    "runs": wait_for_tables,
}
"""What to do in each room before the screenshot."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", choices=GESTURES, default=list(GESTURES), help="rooms to show")
    parser.add_argument("--colours", choices=("light", "dark"), default="light", help="colour scheme of the page")
    parser.add_argument("--width", type=int, default=1400, help="width of the page in pixels")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder of the screenshots")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="path of Chromium")
    arguments = parser.parse_args()
    with running_studio() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"], timeout=TIMEOUT)
        page = browser.new_page(
            viewport={"width": arguments.width, "height": 900}, color_scheme=arguments.colours, reduced_motion="reduce"
        )
        page.set_default_timeout(TIMEOUT)
        for room in arguments.rooms:
            page.goto(f"{address}/#{room}")
            if page.locator(f"#room-{room}").count() == 0:
                print(f"{room}: not in this studio, because its weights are not installed")
                continue
            page.wait_for_timeout(SETTLING_TIME)
            GESTURES[room](page)
            page.wait_for_timeout(SETTLING_TIME)
            path = arguments.out / f"studio_{room}.png"
            page.screenshot(path=path, full_page=True)
            print(f"written: {path}")
        browser.close()


if __name__ == "__main__":
    main()
