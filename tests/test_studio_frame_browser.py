"""The page as a whole, and its room of runs: doors open in any order, curves move, and what goes wrong is told."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import Error, expect

from tests.studio import RECORDS, served

pytestmark = pytest.mark.browser
RUNS = ("clustering-ae32-pb-quick-seed0", "clustering-set-transformer-quick-seed0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two finished runs, and one with a broken file."""
    folder = tmp_path_factory.mktemp("runs")
    for name in RUNS:
        shutil.copytree(RECORDS / name, folder / name)
    shutil.copytree(RECORDS / RUNS[0], folder / "broken")
    (folder / "broken/config.json").write_text('{"format": "picaset-exp')
    return folder


@pytest.fixture(scope="module")
def address(runs, tmp_path_factory, studio_weights):
    """Few networks, two of them cut short, and real data that cannot be read."""
    weights, data = tmp_path_factory.mktemp("weights"), tmp_path_factory.mktemp("data")
    for name in ("odd_one_out_faces_sa_pb", "viewpoints_pb3", "viewpoints_deep_sets", "scenes_pb3", "scenes_ours"):
        shutil.copytree(studio_weights / name, weights / name)
    for name in ("viewpoints_pb3", "scenes_ours"):
        (weights / name / "model.safetensors").write_bytes(b"cut")
    for name in ("celeba", "clevr"):
        (data / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PICASET_DATA", str(data))
        with served(runs, weights=weights) as found:
            yield found


class Held:
    """Requests that are answered when they are let go."""

    def __init__(self, page, address: str) -> None:
        self.page = page
        self.address = address
        self.waiting = []
        page.route(address, lambda route: self.waiting.append(route))

    def until_asked(self) -> None:
        ends = time.monotonic() + 60
        while not self.waiting and time.monotonic() < ends:
            self.page.wait_for_timeout(20)
        assert self.waiting

    def let_go(self) -> None:
        for route in self.waiting:
            route.continue_()
        self.page.unroute(self.address)


def test_a_room_whose_script_is_late_does_not_work_behind_another(page, address):
    looks = list[str]()
    page.on("request", lambda asked: looks.append(asked.url) if "/api/runs/list" in asked.url else None)
    held = Held(page, "**/rooms/runs/room.js")
    page.goto(f"{address}/#runs")
    held.until_asked()
    page.click('[data-link="odd"]')
    held.let_go()
    page.evaluate("import('/rooms/runs/room.js').then(() => null)")
    expect(page.locator(".face")).to_have_count(8)
    assert looks == []
    page.click('[data-link="runs"]')
    expect(page.locator("#runs-count")).to_contain_text("of 3 runs")
    assert looks


def test_a_room_whose_script_does_not_come_is_told_and_can_be_opened_later(page, address):
    page.route("**/rooms/odd/room.js", lambda route: route.abort())
    page.clock.install()
    page.goto(f"{address}/#odd")
    expect(page.locator(".notice")).to_contain_text("Odd one out cannot be opened; is the studio still running")
    page.hover(".notice")
    page.clock.fast_forward(20_000)
    assert page.locator(".notice").count() == 1  # somebody points at it
    page.mouse.move(0, 0)
    page.clock.fast_forward(20_000)
    expect(page.locator(".notice")).to_have_count(0)
    page.unroute("**/rooms/odd/room.js")
    page.click('[data-link="runs"]')
    page.click('[data-link="odd"]')
    expect(page.locator(".face")).to_have_count(8)


def test_faces_that_cannot_be_had_leave_the_set_and_what_is_said_of_it_as_they_were(page, address):
    page.goto(f"{address}/#odd")
    page.wait_for_selector(".face")
    page.check("#odd-reveal")
    expect(page.locator("#odd-verdict")).to_contain_text("predicts")
    page.select_option("#odd-source", "celeba")
    expect(page.locator(".notice")).to_contain_text("CelebA cannot be read: ")
    expect(page.locator("#odd-source")).to_have_value("drawn")
    expect(page.locator("#odd-verdict")).to_contain_text("predicts")
    held = Held(page, "**/api/odd/another*")
    page.click('[data-add="any"]')
    held.until_asked()
    page.route("**/api/odd/face/**", lambda route: route.abort())
    page.click("#odd-new")
    expect(page.locator(".face .hint").first).to_have_text("This image cannot be loaded.")
    with page.expect_response("**/api/odd/another*"):
        held.let_go()
    page.wait_for_timeout(100)
    assert page.locator(".face").count() == 8  # the face was for a set that is gone


def test_a_network_that_cannot_be_read_holds_up_no_verdict_and_another_toy_begins_anew(page, address):
    page.goto(f"{address}/#viewpoints")
    expect(page.locator('[data-model="pb3"] .badge')).to_contain_text("was it cut short?")
    expect(page.locator("#view-verdict")).to_have_text(re.compile("^DeepSets predicts|: DeepSets.$"))
    bars = page.locator('[data-model="deep-sets"] .chosen')
    expect(bars).to_have_count(1)
    held = Held(page, "**/api/viewpoints/picture*")
    page.select_option("#view-category", "car")
    held.until_asked()
    expect(page.locator("#view-verdict")).to_have_text("Waiting for the predictions …")
    expect(page.locator('[data-model="deep-sets"] .badge')).to_have_text("waiting")
    expect(bars).to_have_count(0)
    held.let_go()
    expect(page.locator("#view-verdict")).to_have_text(re.compile("^DeepSets predicts|: DeepSets.$"))


def test_nothing_is_marked_before_the_picture_is_there_and_why_it_is_not_is_told(page, address):
    page.goto(f"{address}/#scenes")
    expect(page.locator("#scene-counts")).to_contain_text("was it cut short?")
    page.check('#scene-model input[value="pb3"]', force=True)
    expect(page.locator("#scene-verdict")).to_have_text(re.compile(r"was it cut short.*; PICASO: \d+ of \d+ found"))
    held = Held(page, "**/api/scenes/picture*")
    asked = list[str]()
    page.on("request", lambda one: asked.append(one.url) if one.url.endswith("/scenes/predict") else None)
    page.click("#scene-new")
    held.until_asked()
    expect(page.locator("#scene-marks g")).to_have_count(0)
    assert (
        page.evaluate("document.querySelector('#scene-canvas').getContext('2d').getImageData(9, 9, 1, 1).data[3]") == 0
    )
    assert asked == []
    held.let_go()
    expect(page.locator("#scene-verdict")).to_have_text(re.compile(r"PICASO: \d+ of \d+ found"))
    page.select_option("#scene-source", "clevr")
    expect(page.locator("#scene-verdict")).to_contain_text("CLEVR cannot be read: ")
    expect(page.locator("#scene-marks g")).to_have_count(0)


def test_runs_show_curves_settings_and_tables_and_what_is_broken(page, address, runs):
    page.goto(f"{address}/#runs")
    expect(page.locator("#runs-count")).to_have_text("3 of 3 runs, 1 cannot be read")
    expect(page.locator(".broken .state")).to_contain_text("config.json is not JSON")
    expect(page.locator("#runs-last")).to_contain_text(f"{RUNS[0]}: -1.608 at step 6000")
    assert page.locator("#runs-chart canvas").count() == 1
    settings = page.locator("#runs-settings tr")
    expect(settings.filter(has_text="network: pool")).to_contain_text("picaso")
    expect(settings.filter(has_text="network: pool")).to_contain_text("attention")
    assert settings.filter(has_text="num_inducing").count() == 0
    page.uncheck("#runs-differing")
    assert settings.filter(has_text="num_inducing").count() == 1
    expect(page.locator("#runs-tables td").filter(has_text="Set Transformer").first).to_be_visible()
    expect(page.locator("#runs-tables .published").filter(has_text="paper -1.563").first).to_be_visible()
    titles = page.locator("#runs-table option").all_text_contents()
    assert titles[0].startswith("Table 2")
    for title in titles:
        page.select_option("#runs-table", title)
        expect(page.locator("#runs-tables h3")).to_have_text([title])
    page.fill("#runs-filter", "transformer")
    assert page.locator("#runs-list li").count() == 1
    page.fill("#runs-filter", "nowhere")
    expect(page.locator("#runs-count")).to_contain_text("No run matches")


def test_the_legend_of_the_curves_keeps_its_form_on_a_narrow_screen(page, address):
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{address}/#runs")
    value = page.locator("#runs-chart .u-legend td").first
    value.wait_for()
    assert value.evaluate("cell => getComputedStyle(cell).display") != "flex"  # as in the tables beside it


def test_a_folder_without_runs_shows_what_to_do_and_no_empty_parts(page, address):
    nothing = {"folder": "runs", "version": "no runs", "runs": []}
    page.route(f"{address}/api/runs/list", lambda route: route.fulfill(json=nothing))
    page.goto(f"{address}/#runs")
    expect(page.locator("#runs-count")).to_have_text(re.compile("train one with: picaset train"))
    for part in ("#curves-title", "#settings-title", "#runs-table", "#runs-filter"):
        expect(page.locator(part)).to_be_hidden()


def test_a_curve_moves_while_a_run_trains(page, address, runs):
    live = runs / "live"
    shutil.copytree(RECORDS / RUNS[0], live)
    (live / "result.json").unlink()
    page.goto(f"{address}/#runs")
    expect(page.locator("#runs-last")).to_contain_text("live: -1.608 at step 6000")
    drawn = page.evaluate("document.querySelector('#runs-chart canvas').toDataURL()")
    with (live / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 6500, "loss": 1.0, "score": -1.25, "seconds": 1.0}) + "\n")
    expect(page.locator("#runs-last")).to_contain_text("live: -1.250 at step 6500")
    assert page.evaluate("document.querySelector('#runs-chart canvas').toDataURL()") != drawn
    shutil.rmtree(live)
    expect(page.locator("#runs-count")).to_have_text("3 of 3 runs, 1 cannot be read")


def test_a_page_from_elsewhere_cannot_read_the_studio(browser, address):
    context = browser.new_context()
    stranger = context.new_page()
    stranger.goto("data:text/html,<title>elsewhere</title>")
    with pytest.raises(Error, match="Failed to fetch"):
        stranger.evaluate(f"fetch('{address}/api/runs/list').then((answer) => answer.text())")
    context.close()
