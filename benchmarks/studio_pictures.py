"""How do the rooms of the studio look? The pictures of ``docs/studio.md``, taken in headless Chromium.

    python -m benchmarks.studio_pictures
    python -m benchmarks.studio_pictures --rooms odd scenes --colours dark --width 390 --out /tmp/pictures

Writes ``studio_<room>.png`` for every room that the studio has here; look at each.
"""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.studio import PATIENCE, started

SETTLED = 3000
"""Milliseconds after which a room that was left alone stands still."""


def push_points(page: Page) -> None:
    page.click("#push")
    page.wait_for_timeout(SETTLED)
    page.wait_for_function("() => !document.querySelector('#room-cluster').textContent.includes('waiting')")


def turn_away(page: Page) -> None:
    page.focus("#view-dial")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    page.click("#view-turn")
    page.wait_for_function("() => document.querySelector('#view-turn').textContent.startsWith('Turn')")


def reveal(page: Page) -> None:
    page.check("#odd-reveal")


def point_at_object(page: Page) -> None:
    page.select_option("#scene-objects", "6")
    page.wait_for_function("() => document.querySelectorAll('#scene-marks g').length >= 6")
    page.locator("#scene-list button").first.hover()


def nothing(page: Page) -> None:
    """The room shows enough by itself."""


DONE: dict[str, Callable[[Page], None]] = {
    "cluster": push_points,
    "viewpoints": turn_away,
    "odd": reveal,
    "scenes": point_at_object,
    "runs": nothing,
}
"""What a person does in each room before the picture is taken."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", choices=DONE, default=list(DONE), help="which rooms")
    parser.add_argument("--colours", choices=("light", "dark"), default="light", help="of the page")
    parser.add_argument("--width", type=int, default=1400, help="of the page, in pixels")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder of the pictures")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="the program of the browser")
    arguments = parser.parse_args()
    with started() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"], timeout=PATIENCE)
        page = browser.new_page(
            viewport={"width": arguments.width, "height": 900},
            color_scheme=arguments.colours,
            reduced_motion="reduce",
        )
        page.set_default_timeout(PATIENCE)
        for room in arguments.rooms:
            page.goto(f"{address}/#{room}")
            if page.locator(f"#room-{room}").count() == 0:
                print(f"{room}: is not in this studio; its networks are not there")
                continue
            page.wait_for_timeout(SETTLED)
            DONE[room](page)
            page.wait_for_timeout(SETTLED)
            path = arguments.out / f"studio_{room}.png"
            page.screenshot(path=path, full_page=True)
            print(f"written: {path}")
        browser.close()


if __name__ == "__main__":
    main()
