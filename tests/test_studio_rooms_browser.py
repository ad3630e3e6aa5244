"""The rooms of pictures as a person uses them, in headless Chromium; small networks, most of them untrained."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

from tests.studio import served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(studio_weights):
    with served(weights=studio_weights) as found:
        yield found


@pytest.fixture
def odd(page, address):
    page.goto(f"{address}/#odd")
    scored(page)
    return page


def scored(page) -> None:
    """Every face has its score of every network."""
    page.wait_for_function(
        """() => document.querySelectorAll("#odd-faces .face-score").length > 0
        && !document.querySelector(".face-score.waiting")
        && [...document.querySelectorAll("#odd-faces img")].every((one) => one.complete && one.naturalWidth === 64)"""
    )


def face_scores(page) -> list[float]:
    """Return the scores of the shipped network that the page shows."""
    shown = page.locator('#odd-faces [data-model="0"] .number').all_inner_texts()
    return [float(text.removeprefix("◆ ")) for text in shown]


def test_predictions_and_solution_are_shown_after_a_guess_and_the_score_is_kept(odd):
    scores = face_scores(odd)
    assert len(scores) == 8
    assert sum(scores) == pytest.approx(1, abs=0.05)
    top = scores.index(max(scores))
    expect(odd.locator("#odd-verdict")).to_have_text("Which face does not belong? Click it.")
    expect(odd.locator(".face-score >> visible=true")).to_have_count(0)
    assert odd.locator(".is-odd").count() == 0
    odd.get_by_label(f"Choose face {top + 1} as the odd one").click()
    expect(odd.locator("#odd-verdict")).to_contain_text(f"You chose face {top + 1}: ✓ correct.")
    expect(odd.locator("#odd-verdict")).to_contain_text(f"Generalized PICASO predicts face {top + 1}")
    expect(odd.locator("#odd-verdict")).to_contain_text("All but the odd one have bushy eyebrows and mouth open.")
    expect(odd.locator("#odd-score")).to_contain_text("Correct of 1 guessed: you 1, Generalized PICASO 1")
    expect(odd.locator(".face-score >> visible=true").first).to_be_visible()
    expect(odd.locator("#odd-faces .face").nth(top)).to_have_class(re.compile("suspected"))
    expect(odd.locator(".is-odd")).to_have_count(1)
    expect(odd.locator(".is-odd .solution")).to_have_text("your guess; odd one out: has neither")
    expect(odd.locator('[data-name="sa-gpb"] .score')).to_contain_text("✓ correct")
    odd.locator(".is-odd").get_by_label(re.compile("Remove")).click()
    expect(odd.locator("#odd-verdict")).to_contain_text("No face is odd: each has bushy eyebrows or mouth open.")
    expect(odd.locator('[data-name="sa-gpb"] .score')).not_to_contain_text(re.compile("✓|✗"))
    odd.click("#odd-new")
    expect(odd.locator("#odd-reveal")).not_to_be_checked()
    expect(odd.locator(".is-odd")).to_have_count(0)
    scored(odd)
    odd.check("#odd-reveal")
    right = odd.locator("#odd-faces .face").evaluate_all(
        "(faces) => faces.findIndex((face) => face.matches('.is-odd'))"
    )
    odd.uncheck("#odd-reveal")
    odd.get_by_label(f"Choose face {2 if right == 0 else 1} as the odd one").click()
    expect(odd.locator("#odd-verdict")).to_contain_text("✗ wrong.")
    expect(odd.locator("#odd-score")).to_contain_text("Correct of 2 guessed: you 1, ")


def test_a_guess_in_a_set_without_a_single_odd_face_does_not_count(odd):
    odd.click('[data-add="odd"]')
    expect(odd.locator(".face")).to_have_count(9)
    odd.get_by_label("Choose face 1 as the odd one").click()
    expect(odd.locator("#odd-verdict")).to_contain_text("the guess does not count")
    expect(odd.locator("#odd-score")).to_be_empty()


def test_faces_are_swapped_added_and_removed_and_scored_anew(odd):
    first, before = odd.get_attribute("#odd-faces img >> nth=0", "src"), face_scores(odd)
    odd.get_by_label("Replace face 1 with another").click()
    expect(odd.locator("#odd-faces img").first).not_to_have_attribute("src", first)
    scored(odd)
    assert face_scores(odd) != before
    odd.click('[data-add="odd"]')
    expect(odd.locator(".face")).to_have_count(9)
    odd.check("#odd-reveal")
    expect(odd.locator(".is-odd")).to_have_count(2)
    expect(odd.locator("#odd-verdict")).to_contain_text(
        "7 of 9 faces have bushy eyebrows and mouth open; 2 have neither."
    )
    for left in range(8, 2, -1):
        odd.get_by_label("Remove face 1", exact=True).press("Enter")
        expect(odd.locator(".face")).to_have_count(left)
    expect(odd.get_by_label("Remove face 1", exact=True)).to_be_disabled()
    expect(odd.locator("#odd-size-shown")).to_have_text("3")
    scored(odd)
    assert sum(face_scores(odd)) == pytest.approx(1, abs=0.05)


def test_a_set_has_the_size_and_the_attributes_that_are_chosen(odd):
    odd.select_option("#odd-first", "Smiling")
    odd.select_option("#odd-second", "Wearing_Hat")
    odd.fill("#odd-size", "12")
    expect(odd.locator(".face")).to_have_count(12)
    odd.check("#odd-reveal")
    expect(odd.locator("#odd-verdict")).to_contain_text("smiling and wearing hat")
    odd.fill("#odd-size", "64")
    expect(odd.locator(".face")).to_have_count(64)
    expect(odd.locator('[data-add="any"]')).to_be_disabled()
    expect(odd.locator('[data-add="any"]')).to_have_attribute(
        "title", "A set has at most 64 faces; remove one to add another."
    )
    expect(odd.locator("#odd-full")).to_have_text("A set has at most 64 faces; remove one to add another.")
    odd.select_option("#odd-second", "Smiling")
    expect(odd.locator(".notice")).to_contain_text("The two attributes must differ")
    expect(odd.locator(".face")).to_have_count(64)
    expect(odd.locator("#odd-second")).to_have_value("Wearing_Hat")


@pytest.fixture
def viewpoints(page, address):
    page.goto(f"{address}/#viewpoints")
    answered(page)
    return page


def answered(page) -> None:
    """Every network has said what it takes the toy for."""
    page.wait_for_function(
        "() => document.querySelectorAll('.view-card').length === 4 && !document.querySelector('.view-card.waiting')"
    )


def pixels(page, selector: str = "#view-picture") -> str:
    return page.evaluate("(selector) => document.querySelector(selector).toDataURL()", selector)


def pixels_after(page, before: str, selector: str = "#view-picture") -> str:
    """Once they are others."""
    page.wait_for_function("([one, old]) => document.querySelector(one).toDataURL() !== old", arg=[selector, before])
    return pixels(page, selector)


def test_a_toy_is_turned_with_keys_and_by_dragging_and_named_anew(viewpoints):
    before = pixels(viewpoints, "#view-picture")
    viewpoints.focus("#view-dial")
    for _ in range(4):  # from 20 degrees
        viewpoints.keyboard.press("ArrowRight")
    expect(viewpoints.locator("#view-dial")).to_have_attribute("aria-valuenow", "60")
    expect(viewpoints.locator("#view-place")).to_have_text(
        "In the training data: this elevation and this lighting. "
        "New to the networks: this azimuth (20° from the nearest) and this toy."
    )
    turned = pixels_after(viewpoints, before)
    box = viewpoints.locator("#view-dial").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    viewpoints.mouse.move(middle[0] + 40, middle[1])
    viewpoints.mouse.down()
    viewpoints.mouse.move(middle[0], middle[1] + 40, steps=6)
    viewpoints.mouse.up()
    expect(viewpoints.locator("#view-dial")).to_have_attribute(
        "aria-valuetext", "180 degrees, 120 degrees from the nearest in the training data"
    )
    viewpoints.fill("#view-elevation", "1")
    viewpoints.fill("#view-lighting", "3")
    expect(viewpoints.locator("#view-place")).to_have_text(
        "In the training data: this lighting. "
        "New to the networks: this azimuth (120° from the nearest), this elevation and this toy."
    )
    pixels_after(viewpoints, turned)
    answered(viewpoints)
    for card in viewpoints.locator(".view-card").all():
        odds = [float(text) for text in card.locator(".odds .number").all_inner_texts()]
        assert sum(odds) == pytest.approx(1, abs=0.03)
        said = card.locator(".odds .chosen span").first.inner_text()
        assert card.locator(".badge").inner_text() == ("✓ animal" if said == "animal" else f"✗ {said}")


def test_a_whole_turn_counts_who_is_right_at_familiar_and_at_novel_views(viewpoints):
    viewpoints.select_option("#view-category", "car")
    answered(viewpoints)
    viewpoints.focus("#view-dial")
    viewpoints.keyboard.press("ArrowRight")  # an azimuth that the turn leaves out
    expect(viewpoints.locator(".view-card .hint").last).to_contain_text("Correct at")
    viewpoints.click("#view-turn")
    for card in viewpoints.locator(".view-card").all():
        expect(card.locator(".hint").last).to_have_text(re.compile(r"\d of 6 training azimuths, at \d+ of 12 others"))
    expect(viewpoints.locator("#view-turn")).to_have_text("Turn it once around")
    expect(viewpoints.locator("#view-verdict")).to_have_text(
        re.compile(r"^Full turn of the car: (.+ correct at \d+ of 18(, |\.$)){4}")
    )
    viewpoints.focus("#view-dial")
    viewpoints.keyboard.press("ArrowRight")
    expect(viewpoints.locator("#view-verdict")).to_have_text(re.compile("predicts|Correct"))


def test_where_a_network_looks_is_laid_over_the_toy_step_by_step_and_head_by_head(viewpoints):
    assert viewpoints.locator("#view-film button").count() == 3 * 3  # steps, by two heads and their mean
    mean = pixels(viewpoints)
    viewpoints.get_by_label("Step 1, head 2").click()
    expect(viewpoints.get_by_label("Step 1, head 2")).to_have_attribute("aria-pressed", "true")
    one = pixels_after(viewpoints, mean)
    viewpoints.check('#view-attention input[value="set-transformer"]', force=True)
    assert viewpoints.locator("#view-film button").count() == 3
    over = pixels_after(viewpoints, one)
    viewpoints.uncheck("#view-heat")
    pixels_after(viewpoints, over)


@pytest.fixture
def scenes(page, address):
    page.goto(f"{address}/#scenes")
    judged(page)
    return page


def judged(page) -> None:
    """Both networks have said what they see, and the picture is there."""
    expect(page.locator("#scene-verdict")).to_have_text(
        re.compile(r"PICASO: \d of \d+ found, \d+ wrong, \d+ missed; Slot Attention: \d of \d+ found, .* missed\.")
    )
    page.wait_for_function(
        """() => document.querySelector("#scene-canvas").getContext("2d").getImageData(20, 20, 1, 1).data[3] === 255"""
    )


def number_there(page) -> int:
    return int(re.findall(r"of (\d+) found", page.inner_text("#scene-counts"))[0])


def test_what_is_seen_is_listed_in_words_and_marked_in_the_picture(scenes):
    for count in (4, 9):
        scenes.select_option("#scene-objects", str(count))
        judged(scenes)
        expect(scenes.locator("#scene-counts")).to_contain_text(f"of {count} found")
        found, invented, missed = map(int, re.findall(r"(\d+) (?:of|wrong|missed)", scenes.inner_text("#scene-counts")))
        assert found + missed == count
        assert scenes.locator("#scene-list button").count() == found + invented
        assert scenes.locator("#scene-missed li").count() == missed
        assert scenes.locator("#scene-marks .found").count() == found
        assert scenes.locator("#scene-marks g").count() == found + invented + missed
        for words in scenes.locator("#scene-list button span:nth-child(3)").all_inner_texts():
            assert re.fullmatch(r"(small|large) \w+ (rubber|metal) (cube|sphere|cylinder)( \(wrong\))?", words)
    before = pixels(scenes, "#scene-canvas")
    scenes.click("#scene-new")
    pixels_after(scenes, before, "#scene-canvas")
    judged(scenes)
    assert number_there(scenes) == 9


def test_pointing_at_an_object_shows_what_its_template_looked_at_step_by_step(scenes):
    plain = pixels(scenes, "#scene-canvas")
    assert scenes.locator("#scene-step-shown").inner_text() == "3 of 3"
    first = scenes.locator("#scene-list button").first
    first.focus()
    looked = pixels_after(scenes, plain, "#scene-canvas")
    expect(scenes.locator("#scene-marks g.current")).to_have_count(1)
    scenes.keyboard.press("Enter")
    expect(first).to_have_attribute("aria-pressed", "true")
    scenes.fill("#scene-step", "1")
    expect(scenes.locator("#scene-step-shown")).to_have_text("1 of 3")
    pixels_after(scenes, looked, "#scene-canvas")
    scenes.fill("#scene-step", "0")
    expect(scenes.locator("#scene-step-shown")).to_have_text("0 (start)")
    scenes.wait_for_function("(old) => document.querySelector('#scene-canvas').toDataURL() === old", arg=plain)
    scenes.check('#scene-model input[value="slot-attention"]', force=True)
    expect(scenes.locator("#scene-model-about")).to_contain_text("Ten slots compete")


ROOMS: dict[str, Callable[[Page], object]] = {
    "cluster": lambda page: page.wait_for_selector("#cards .card"),
    "viewpoints": answered,
    "odd": scored,
    "scenes": judged,
    "runs": lambda page: page.wait_for_selector("#runs-list li"),
}
"""A function for each room that waits until the page shows its results."""


@pytest.mark.parametrize("width", [390, 1600])
def test_every_room_fits_any_width_in_both_colours_and_every_control_says_what_it_does(page, address, width):
    page.set_viewport_size({"width": width, "height": 900})
    for room, is_there in ROOMS.items():
        page.goto(f"{address}/#{room}")
        is_there(page)
        backgrounds = set[str]()
        for theme in ("light", "dark"):
            page.select_option("#theme", theme)
            backgrounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert len(backgrounds) == 2
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, textarea, img, canvas, [role=slider]")]
        .filter((control) => !control.closest("[aria-hidden]"))
        .filter((control) => !(control.labels?.length || control.ariaLabel
          || !control.matches("select, input, textarea") && control.textContent.trim()
          || control.alt !== undefined && control.getAttribute("alt") !== null || control.closest("#runs-chart")))
        .map((control) => control.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("div[aria-label]:not([role])").count() == 0  # a name that nobody would say
    for section in page.locator("section.room").all():
        levels = [int(head.evaluate("(one) => one.tagName[1]")) for head in section.locator("h1, h2, h3").all()]
        assert all(after <= before + 1 for before, after in pairwise([0, *levels]))
