"""The studio as a person uses it: clicking, dragging and typing in headless Chromium, and looking at what is shown."""

import csv
import io
import math
import re
import shutil
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.studio import WEIGHTS, served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address():
    with served() as found:
        yield found


@pytest.fixture
def cluster(page, address):
    page.goto(f"{address}/#cluster")
    settled(page)
    return page


def settled(page) -> None:
    """Every card has its result of the last gesture."""
    page.wait_for_function(
        """() => { const cards = [...document.querySelectorAll(".card")];
        return cards.length === 6 && !document.querySelector(".card.stale")
          && cards.every((card) => /\\d/.test(card.querySelector(".likelihood").textContent)); }"""
    )
    page.wait_for_timeout(400)  # until the cards are judged together


def number_of_points(page) -> int:
    return int(page.inner_text("#board-state").split()[0])


def likelihood(page, method: str) -> float:
    return float(page.inner_text(f'[data-method="{method}"] .likelihood').replace("\N{MINUS SIGN}", "-"))


def badge(page, method: str) -> str:
    return page.inner_text(f'[data-method="{method}"] .badge')


def click_board(page, left: float, top: float) -> None:
    """At a share of the board's width and height."""
    page.locator("#board").scroll_into_view_if_needed()
    box = page.locator("#board").bounding_box()
    page.mouse.click(box["x"] + left * box["width"], box["y"] + top * box["height"])


def is_drawn(page, selector: str, left: float, top: float) -> bool:
    """Whether something other than grid and background is at a share of a canvas."""
    return page.evaluate(
        """([selector, left, top]) => { const canvas = document.querySelector(selector);
        const { data } = canvas.getContext("2d").getImageData(left * canvas.width - 1, top * canvas.height - 1, 3, 3);
        return Array.from(data).some((value, index) => index % 4 === 3 && value > 170); }""",
        [selector, left, top],
    )


def downloaded(page, button: str) -> str:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path()).read_text()


def test_pushing_the_shift_shows_who_loses_the_points(cluster):
    assert "good fit" in badge(cluster, "set-transformer")
    before = likelihood(cluster, "picaso-canonical")
    cluster.click("#push")
    expect(cluster.locator("#shift-shown")).to_have_text("+12")
    expect(cluster.locator("#verdict")).to_have_text(re.compile(r"shifted by \+12: .*Set Transformer.* fit poorly"))
    settled(cluster)
    for method, word in {
        "set-transformer": "poor fit",
        "deep-sets": "poor fit",
        "picaso-canonical": "good fit",
    }.items():
        assert word in badge(cluster, method)
    assert likelihood(cluster, "picaso-canonical") == pytest.approx(before, abs=0.011)
    assert likelihood(cluster, "set-transformer") < likelihood(cluster, "scikit-learn") - 1.5
    cluster.click("#back")
    expect(cluster.locator("#verdict")).to_have_text(re.compile("not shifted: .*Set Transformer.* fit well"))


def test_points_are_added_moved_sprayed_and_erased_with_the_mouse(cluster):
    assert "Log-likelihood" in cluster.inner_text("#cascade-state")
    cluster.click("#clear")
    expect(cluster.locator("#verdict")).to_have_text(re.compile("Add at least two points"))
    expect(cluster.locator("#cascade-state")).to_have_text("Add at least two points.")
    assert cluster.evaluate(
        "[...document.querySelectorAll('#cascade, #film canvas, .card canvas')].every((canvas) => "
        "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.every((value) => value === 0))"
    )
    for left, top in [(0.2, 0.2), (0.8, 0.8), (0.25, 0.8), (0.7, 0.3)]:
        assert not is_drawn(cluster, "#board", left, top)
        click_board(cluster, left, top)
        assert is_drawn(cluster, "#board", left, top)
    expect(cluster.locator("#cards")).not_to_contain_text("Add at least two points.")
    assert number_of_points(cluster) == 4
    settled(cluster)
    before = likelihood(cluster, "scikit-learn")

    cluster.check('#tools input[value="move"]', force=True)
    box = cluster.locator("#board").bounding_box()
    cluster.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    cluster.mouse.down()
    cluster.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    cluster.mouse.up()
    assert is_drawn(cluster, "#board", 0.5, 0.5)
    assert not is_drawn(cluster, "#board", 0.2, 0.2)
    assert number_of_points(cluster) == 4

    cluster.check('#tools input[value="spray"]', force=True)
    click_board(cluster, 0.5, 0.2)
    assert number_of_points(cluster) == 16
    settled(cluster)
    assert likelihood(cluster, "scikit-learn") != before

    cluster.check('#tools input[value="erase"]', force=True)
    click_board(cluster, 0.8, 0.8)
    assert number_of_points(cluster) == 15
    for left in (15, 16, 4):
        assert number_of_points(cluster) == left
        cluster.click("#undo")
    cluster.click("#redo")
    assert number_of_points(cluster) == 4


def test_picaso_follows_a_hand_and_the_others_when_it_rests(cluster):
    asked = list[str]()
    cluster.on("request", lambda request: asked.append(request.post_data_json["method"]) if request.post_data else None)
    box = cluster.locator("#shift").bounding_box()
    began = time.monotonic()
    cluster.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    cluster.mouse.down()
    for share in range(50, 90):
        cluster.mouse.move(box["x"] + share / 100 * box["width"], box["y"] + box["height"] / 2)
    cluster.mouse.up()
    seconds = time.monotonic() - began
    settled(cluster)
    assert asked.count("picaso") >= 3
    for method in ("picaso-canonical", "set-transformer", "deep-sets", "clusterer", "scikit-learn"):
        assert 2 <= asked.count(method) <= 3 + seconds / 0.3
    assert likelihood(cluster, "deep-sets") < likelihood(cluster, "picaso-canonical") - 1.5


def test_the_keyboard_alone_does_it_all(cluster):
    cluster.click("h1")
    for _ in range(60):
        cluster.keyboard.press("Tab")
        if cluster.evaluate("document.activeElement.id") == "board":
            break
    assert cluster.evaluate("document.activeElement.id") == "board"
    assert cluster.evaluate("document.activeElement.matches(':focus-visible')")
    cluster.keyboard.press("Shift+ArrowRight")
    cluster.keyboard.press("Space")
    assert number_of_points(cluster) == 401
    cluster.keyboard.press("s")
    cluster.keyboard.press("Space")
    assert number_of_points(cluster) == 413
    cluster.keyboard.press("Control+z")
    assert number_of_points(cluster) == 401
    cluster.keyboard.press("m")
    cluster.keyboard.press("Space")
    expect(cluster.locator("#board-state")).to_have_text(re.compile("Picked up the nearest point"))
    for _ in range(3):
        cluster.keyboard.press("Shift+ArrowDown")
    cluster.keyboard.press("Space")
    cluster.keyboard.press("e")
    cluster.keyboard.press("Space")
    assert number_of_points(cluster) < 401
    cluster.focus("#shift")
    for _ in range(24):
        cluster.keyboard.press("ArrowRight")
    expect(cluster.locator("#shift-shown")).to_have_text("+12")
    expect(cluster.locator("#verdict")).to_have_text(re.compile("Set Transformer.* fit poorly"))


def test_a_table_is_pasted_and_a_wrong_one_is_refused_with_its_line(cluster, tmp_path):
    def paste(text: str) -> None:
        cluster.click("#paste")
        cluster.fill("#paste-text", text)
        cluster.click("#paste-dialog button[value=take]")

    paste("x,y\n1,2\n3,four\n")
    expect(cluster.locator("#paste-problem")).to_contain_text("line 3: column y has 'four', which is not a number.")
    assert cluster.locator("#paste-dialog").is_visible()
    assert number_of_points(cluster) == 400
    cluster.click("#paste-dialog button[value=cancel]")
    expect(cluster.locator("#example")).to_have_value("four")
    paste("x,y\n1,2\n3,4\n-2,1\n0,0\n2,2\n")
    expect(cluster.locator("#board-state")).to_have_text("5 points")
    expect(cluster.locator("#paste-dialog")).not_to_be_visible()
    expect(cluster.locator("#example option:checked")).to_have_text("Your own points")
    cluster.click("#undo")
    expect(cluster.locator("#example")).to_have_value("four")
    cluster.click("#redo")
    expect(cluster.locator("#example")).to_have_value("own")
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    cluster.set_input_files("#file", empty)
    expect(cluster.locator(".notice")).to_contain_text("The table is empty.")
    large = tmp_path / "large.csv"
    large.write_text("0.5,0.25\n" * 1_000_000)
    cluster.set_input_files("#file", large)
    expect(cluster.locator(".notice")).to_have_count(1)
    expect(cluster.locator(".notice")).to_contain_text(
        "large.csv has 9.0 MB; the page accepts at most 0.9 MB and 5,000 points."
    )
    text, button = cluster.locator(".notice").evaluate(
        "notice => ['p', 'button'].map(part => notice.querySelector(part).getBoundingClientRect().height)"
    )
    assert text > 40 > button  # two lines at least, and the button has one
    click_board(cluster, 0.5, 0.5)
    expect(cluster.locator(".notice")).to_have_count(0)  # other things succeed since
    small = tmp_path / "small.csv"
    small.write_text("0.5,0.25\n1,2\n4,3\n")
    cluster.set_input_files("#file", small)
    expect(cluster.locator("#board-state")).to_have_text("3 points")


def paste(page, text: str) -> None:
    page.click("#paste")
    page.fill("#paste-text", text)
    page.click("#paste-dialog button[value=take]")
    expect(page.locator("#paste-dialog")).not_to_be_visible()
    settled(page)


@pytest.mark.parametrize("origin", [(48.8566, 2.3522), (691_600.25, 5_336_000.5)], ids=["degrees", "metres"])
def test_places_on_a_map_fill_the_frame(cluster, origin):
    offsets = [(index % 11 - 5, index // 11 - 5) for index in range(121)]
    size = 1e-3 if origin[0] < 100 else 100
    rows = (f"{origin[0] + size * east:.6f},{origin[1] + size * north:.6f}\n" for east, north in offsets)
    paste(cluster, "x,y\n" + "".join(rows))
    expect(cluster.locator("#board-state")).to_have_text("121 points")
    half = 5 * 1.1  # half the width of the frame, in steps of the places
    shares = [0.5 + 0.5 * step / half for step in (-5, 0, 5)]
    box = cluster.locator("#board").bounding_box()
    side = min(box["width"], box["height"])
    for left in shares:
        for top in shares:
            across = 0.5 + (left - 0.5) * side / box["width"]
            down = 0.5 + (top - 0.5) * side / box["height"]
            assert is_drawn(cluster, "#board", across, down)
    assert "good fit" in badge(cluster, "clusterer")
    expect(cluster.locator('[data-method="clusterer"] .outside')).to_have_text("")
    assert len(cluster.locator('[data-method="picaso"] .likelihood').inner_text()) <= 8


def test_two_long_clusters_under_four_circles_are_no_good_fit(cluster):
    steps = [index / 150 - 1 for index in range(301)]
    rows = [f"{12 * step:.4f},{0.2 * math.sin(40 * step):.4f}\n" for step in steps]
    rows += [f"{0.2 * math.sin(40 * step):.4f},{40 + 12 * step:.4f}\n" for step in steps]
    paste(cluster, "x,y\n" + "".join(rows))
    cluster.select_option("#covariance", "spherical")
    settled(cluster)
    for method in ("clusterer", "scikit-learn"):
        expect(cluster.locator(f'[data-method="{method}"] .badge')).to_have_text(re.compile("rough|poor"))
    assert "fit well" not in cluster.inner_text("#verdict")
    cluster.select_option("#covariance", "full")
    settled(cluster)
    expect(cluster.locator('[data-method="clusterer"] .badge')).to_have_text(re.compile("good fit"))


def test_components_are_as_many_as_the_slider_says_where_a_method_can_choose(cluster):
    cluster.fill("#components", "6")
    expect(cluster.locator("#components-shown")).to_have_text("6")
    for method, count in {"scikit-learn": 6, "clusterer": 6, "picaso": 4}.items():
        canvas = cluster.locator(f'[data-method="{method}"] canvas')
        expect(canvas).to_have_attribute("aria-label", re.compile(f": {count} components, log-likelihood"))


def test_the_cascade_is_shown_step_by_step(cluster):
    state = cluster.locator("#cascade-state")
    seen = list[str]()
    for step in ("0", "1", "2"):
        cluster.fill("#step", step)
        seen.append(state.inner_text())
    assert len(set(seen)) == 3
    assert float(seen[2].split()[1].rstrip(";").replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        likelihood(cluster, "picaso"), abs=0.02
    )
    pixels = "document.querySelector('#cascade').toDataURL()"
    cluster.check('#templates input[value="0"]', force=True)
    first = cluster.evaluate(pixels)
    cluster.check('#templates input[value="1"]', force=True)
    assert cluster.evaluate(pixels) != first
    cluster.click("#play")
    expect(cluster.locator("#step-shown")).to_have_text("0 (start)")
    expect(cluster.locator("#step-shown")).to_have_text("2 of 2")
    expect(cluster.locator("#play")).to_have_text("Play")


def test_the_cascade_plays_once_when_it_is_first_seen(browser, address):
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="no-preference")
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#film figure")).to_have_count(3)
    expect(page.locator("#play")).to_have_text("Play")
    page.locator("#cascade").scroll_into_view_if_needed()
    expect(page.locator("#play")).to_have_text("Stop")
    expect(page.locator("#step-shown")).to_have_text("2 of 2")
    expect(page.locator("#play")).to_have_text("Play")
    page.mouse.wheel(0, -5000)
    page.locator("#cascade").scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    expect(page.locator("#play")).to_have_text("Play")
    context.close()


def test_result_and_picture_can_be_taken_away(cluster):
    rows = list(csv.DictReader(io.StringIO(downloaded(cluster, "#download-csv"))))
    assert len(rows) == 400
    assert {row["component"] for row in rows} <= {"1", "2", "3", "4"}
    picture = ElementTree.fromstring(downloaded(cluster, "#download-svg"))
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}circle")) >= 6 * 400
    lines = [str(line.text) for line in picture.findall(".//{http://www.w3.org/2000/svg}tspan")]
    assert " ".join(lines) == cluster.inner_text("#verdict")
    assert max(map(len, lines)) * 8 < float(picture.attrib["width"])


def test_a_studio_that_does_not_respond_is_reported(cluster, address):
    cluster.route("**/api/cluster/csv", lambda route: route.abort())
    cluster.click("#paste")
    cluster.fill("#paste-text", "1,2\n3,4\n")
    cluster.click("#paste-dialog button[value=take]")
    expect(cluster.locator("#paste-problem")).to_contain_text("The studio does not answer; is it still running")
    cluster.click("#paste-dialog button[value=cancel]")
    cluster.unroute("**/api/cluster/csv")
    cluster.route("**/api/cluster/**", lambda route: route.abort())
    click_board(cluster, 0.5, 0.5)
    assert number_of_points(cluster) == 401
    expect(cluster.locator("#verdict")).to_have_text(re.compile("No results: The studio does not answer"))
    cluster.unroute("**/api/cluster/**")
    click_board(cluster, 0.5, 0.5)
    expect(cluster.locator("#verdict")).to_have_text(re.compile("fit well"))


def test_with_few_networks_only_theirs_are_shown_and_without_steps_no_attention(browser, tmp_path):
    shutil.copytree(WEIGHTS / "mixture_deep_sets", tmp_path / "mixture_deep_sets")
    with served(weights=tmp_path) as address:
        page = browser.new_page()
        page.goto(f"{address}/#cluster")
        expect(page.locator(".card h3")).to_have_text(["DeepSets", "picaset cluster", "scikit-learn"])
        expect(page.locator("#verdict")).to_have_text(re.compile("not shifted: "))
        expect(page.locator(".panel.cascade")).to_be_hidden()
        page.close()
