"""The studio's API: what it answers is what the library computes, and slow, wrong or foreign requests hurt nobody."""

import asyncio
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from picaset.commands import main
from picaset.models.mixture_network import MixtureNetwork
from picaset.operators.mixture import log_likelihood
from picaset.studio.errors import Refused
from picaset.studio.guard import MOST_BYTES
from picaset.studio.lane import Lane, or_error
from picaset.studio.read_once import ReadOnce
from picaset.studio.rooms.cluster import methods
from picaset.studio.rooms.cluster.fit_process import FitProcess
from picaset.studio.rooms.cluster.schemas import MethodName
from picaset.studio.server import hosts_of, listen
from tests.studio import HOST, RECORDS, blobs, studio

NETWORKS = [name.value for name in methods.NETWORKS]
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def here(studio_weights):
    with studio(weights=studio_weights) as found:
        yield found


def said(response) -> str:
    return response.json()["message"]


# What is computed


@pytest.mark.parametrize("name", NETWORKS)
def test_an_answer_is_what_the_shipped_network_says(here, name):
    points = blobs(70, shift=2)
    answer = here.fit(points, name).json()
    network = MixtureNetwork.from_pretrained(ROOT / "picaset/weights" / methods.NETWORKS[name]).float()
    mixture = network(torch.tensor([points]))
    found = log_likelihood(mixture, torch.tensor([points]))
    assert answer["log_likelihood"] == pytest.approx(found.item(), abs=1e-3)
    assert [component["mean"] for component in answer["components"]] == [
        pytest.approx(mean, abs=1e-3) for mean in mixture.means[0].tolist()
    ]
    assert len(answer["labels"]) == 70


@pytest.mark.parametrize("name", ["picaso-canonical", "clusterer"])
def test_methods_that_move_with_the_points_fit_alike_at_any_shift(here, name):
    near, far = (here.fit(blobs(200, shift=shift), name).json()["log_likelihood"] for shift in (0, 12))
    assert near == pytest.approx(far, abs=2e-3)


def test_set_transformer_loses_points_that_are_shifted_by_12(here):
    points = np.array(here.client.get("/api/cluster/examples/four?seed=258").json()["points"])
    near, far = (here.fit((points + shift).tolist(), "set-transformer").json() for shift in (0, 12))
    assert near["log_likelihood"] > far["log_likelihood"] + 1.5


@pytest.mark.parametrize("name", ["clusterer", "scikit-learn"])
@pytest.mark.parametrize("components", [1, 2, 5])
def test_methods_that_can_choose_find_as_many_components_as_asked_for(here, name, components):
    answer = here.fit(blobs(60), name, components=components).json()
    assert len(answer["components"]) == components
    assert set(answer["labels"]) <= set(range(components))


def test_the_last_step_of_a_cascade_is_what_the_network_says(here):
    for name in ("picaso", "picaso-canonical"):
        points = blobs(50, shift=1)
        steps = here.client.post("/api/cluster/steps", json={"method": name, "points": points}).json()["steps"]
        fitted = here.fit(points, name).json()
        assert len(steps) == 3
        assert steps[0]["attention"] == []
        assert all(max(look) == 255 and len(look) == 50 for step in steps[1:] for look in step["attention"])
        assert steps[-1]["log_likelihood"] == pytest.approx(fitted["log_likelihood"], abs=1e-3)


def test_examples_are_the_same_for_the_same_seed_and_can_be_fitted(here):
    for example in here.client.get("/api/cluster/examples").json():
        address = f"/api/cluster/examples/{example['name']}"
        first, again, other = (here.client.get(f"{address}?seed={seed}").json()["points"] for seed in (3, 3, 4))
        assert first == again != other
        assert here.fit(first, "deep-sets").status_code == 200


# Many at once, and newer ones


def test_a_thousand_calls_at_once_are_all_answered_right(here):
    sets = [blobs(8, seed=seed) for seed in range(20)]
    alone = [here.fit(points, "picaso").json() for points in sets]
    asked = [{"url": "/api/cluster/fit", "json": {"method": "picaso", "points": points}} for points in sets]
    for index, answer in enumerate(all_at_once(here, 50 * asked)):
        assert answer.status_code == 200
        assert answer.json()["log_likelihood"] == pytest.approx(alone[index % 20]["log_likelihood"], abs=1e-3)
        assert answer.json()["labels"] == alone[index % 20]["labels"]


def test_hundreds_of_calls_for_pictures_and_what_is_seen_in_them_are_all_answered_right(here):
    asked = list[dict[str, Any]]()
    for number in range(3):
        view = {"category": "car", "instance": number, "azimuth": 6 * number}
        scene = {"seed": number, "objects": 3 + number}
        asked += [
            {"url": "/api/viewpoints/picture", "params": view},
            {"url": "/api/viewpoints/seen", "json": {"model": "pb3", "view": view}},
            {"url": "/api/scenes/picture", "params": scene},
            {"url": "/api/scenes/seen", "json": {"model": "pb3", "scene": scene}},
            {"url": "/api/odd/set", "params": {"seed": number}},
            {"url": f"/api/odd/face/drawn/{number}"},
            {"url": "/api/odd/scores", "json": {"model": "sa-pma", "faces": list(range(number, 9))}},
        ]
    alone = [what_is_said(answer) for one in asked for answer in all_at_once(here, [one])]
    assert len({str(one) for one in alone}) == len(asked)
    for index, answer in enumerate(all_at_once(here, 10 * asked)):
        assert what_is_said(answer) == alone[index % len(asked)]


def all_at_once(here, asked: list[dict[str, Any]]) -> list[httpx2.Response]:
    async def ask_all() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=here.application)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", timeout=120) as client:
            return await asyncio.gather(*(client.request("POST" if "json" in one else "GET", **one) for one in asked))

    return asyncio.run(ask_all())


def what_is_said(answer: httpx2.Response) -> Any:
    """A picture, or a result without the time that it took."""
    assert answer.status_code == 200
    return answer.content if answer.headers["content-type"] == "image/png" else answer.json() | {"milliseconds": 0}


class Held:
    """Work that waits until it is let go, and remembers what was done."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.done = list[tuple[str, list[int]]]()

    def __call__(self, kind, items):
        self.go.wait(10)
        self.done.append((kind, items))
        return [10 * item for item in items]


def test_a_newer_gesture_replaces_an_older_one_of_its_page_and_no_other():
    held = Held()
    lane = Lane(held, ["fit"], together=32)

    async def ask_all():
        first = asyncio.ensure_future(lane.ask("fit", 0))  # holds the lane
        await asyncio.sleep(0.05)
        asked = [
            asyncio.ensure_future(lane.ask("fit", number, page=page, gesture=gesture))
            for number, (page, gesture) in enumerate([("mine", 1), ("yours", 1), ("mine", 3), ("mine", 2)], start=1)
        ]
        await asyncio.sleep(0.05)
        held.go.set()
        return await asyncio.gather(first, *asked, return_exceptions=True)

    first, replaced, yours, newest, late = asyncio.run(ask_all())
    lane.close()
    assert (first, yours, newest) == (0, 20, 30)
    assert [error.status for error in (replaced, late) if isinstance(error, Refused)] == [409, 409]
    assert held.done == [("fit", [0]), ("fit", [2, 3])]  # what was replaced was never begun


@pytest.mark.parametrize(
    ("together", "expected"),
    [
        (32, [("other", [0]), ("urgent", [1, 1]), ("other", [1, 1])]),
        (1, [("other", [0]), *[("urgent", [1])] * 2, *[("other", [1])] * 2]),
    ],
)
def test_the_most_urgent_kind_is_done_first_and_what_waits_of_a_kind_in_one_call_if_it_may(together, expected):
    held = Held()
    lane = Lane(held, ["urgent", "other"], together=together)

    async def ask_all():
        asked = [asyncio.ensure_future(lane.ask("other", 0))]
        await asyncio.sleep(0.05)
        asked += [asyncio.ensure_future(lane.ask(kind, 1)) for kind in ("other", "urgent", "other", "urgent")]
        await asyncio.sleep(0.05)
        held.go.set()
        await asyncio.gather(*asked)

    asyncio.run(ask_all())
    lane.close()
    assert held.done == expected


def test_work_that_takes_too_long_is_given_up_with_a_message():
    held = Held()
    lane = Lane(held, ["fit"], seconds=0.05)
    with pytest.raises(Refused, match=r"took longer than 0\.05 s and was given up. Use fewer points"):
        asyncio.run(lane.ask("fit", 1))
    held.go.set()
    lane.close()


def test_a_file_that_cannot_be_read_is_told_as_a_mistake_is():
    lane = Lane(lambda kind, items: [or_error(Path("nowhere").read_text) for _ in items], ["fit"])
    with pytest.raises(Refused, match="No such file or directory: 'nowhere'"):
        asyncio.run(lane.ask("fit", 1))
    lane.close()


def test_what_is_read_once_is_waited_for_or_comes_later_and_a_failure_is_told_until_it_is_tried_again():
    go, found = threading.Event(), [OSError("the disk is gone"), "faces"]

    def read():
        go.wait(10)
        one = found.pop(0)
        if isinstance(one, OSError):
            raise one
        return one

    once = ReadOnce("CelebA", read)
    with pytest.raises(Refused, match="CelebA is being read, once; try again in a moment"):
        once.now()
    go.set()
    for wait in (lambda: once.start().result(), once.now):
        with pytest.raises(Refused, match="CelebA cannot be read: the disk is gone"):
            wait()
    asyncio.run(once.ready())
    assert once.now() == once.wait() == "faces"
    assert found == []


def test_an_error_in_the_work_ends_neither_the_lane_nor_the_others():
    def half(kind, items):
        return [ValueError("odd") if item % 2 else item for item in items]

    lane = Lane(half, ["fit"])
    with pytest.raises(Refused, match="odd"):
        asyncio.run(lane.ask("fit", 1))
    assert asyncio.run(lane.ask("fit", 2)) == 2
    lane.close()


def test_a_fit_that_takes_too_long_is_ended():
    process = FitProcess(MethodName.SCIKIT_LEARN, seconds=0)
    question = methods.Question(np.array(blobs(2000)), 8)
    with pytest.raises(ValueError, match=r"scikit-learn took longer than 0 s and was given up. Use fewer points\."):
        process.ask(question)
    assert process.process is None


def test_a_fit_ended_by_two_at_once_is_ended_once():
    process = FitProcess(MethodName.SCIKIT_LEARN)
    both = threading.Barrier(2)
    closed = []

    def close():
        closed.append(True)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.2)

    process.process = SimpleNamespace(kill=lambda: None, join=lambda: None)
    process.connection = SimpleNamespace(close=close)
    enders = [threading.Thread(target=process.end) for _ in range(2)]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join()
    assert closed == [True]


# What is refused


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:9999", ""])
def test_a_foreign_host_is_refused(here, host):
    answer = here.client.get("/", headers={"Host": host})
    assert answer.status_code == 403
    assert said(answer) == f"This studio is at {HOST}; the request was for {host!r}."


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_a_page_from_elsewhere_is_refused(here, headers):
    answer = here.client.post("/api/cluster/fit", json={"method": "picaso", "points": blobs(5)}, headers=headers)
    assert answer.status_code == 403
    assert "may not use the studio" in said(answer)


def test_the_page_itself_and_a_link_to_it_are_not_refused(here):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for headers in ({"Origin": f"http://{HOST}"}, link):
        assert here.client.get("/", headers=headers).status_code == 200
    for path in ("/api/cluster/methods", "/api/scenes/picture?objects=10", "/static/frame.js"):
        assert here.client.get(path, headers=link).status_code == 403


def test_on_the_usual_port_a_browser_leaves_it_out():
    assert hosts_of("localhost", 80) == [
        "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "localhost", "localhost:80",
    ]  # fmt: skip
    assert "localhost" not in hosts_of("localhost", 8080)


def test_a_large_body_is_refused_and_so_is_one_that_does_not_say_its_length(here):
    large, headers = b"[" * (MOST_BYTES + 1), {"Content-Type": "application/json"}
    answer = here.client.post("/api/cluster/fit", content=large, headers=headers)
    assert answer.status_code == 413
    assert "at most 1 MB at once" in said(answer)
    answer = here.client.post("/api/cluster/fit", content=(large[:1000] for _ in range(2000)), headers=headers)
    assert answer.status_code == 411
    assert said(answer) == "A request must say how long it is, by Content-Length."


def test_a_million_points_are_refused_with_what_to_do(here):
    body = b'{"method": "picaso", "points": [' + b"[0.5, 0.25], " * 999_999 + b"[1, 2]]}"
    answer = here.client.post("/api/cluster/fit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert said(answer).endswith("Take a sample of the points.")
    answer = here.fit([[0, 1]] * 5001)
    assert (answer.status_code, "at most 5000" in said(answer)) == (422, True)


@pytest.mark.parametrize(
    ("method", "points", "message"),
    [
        ("picaso", "[[0, 1], [NaN, 2]]", "points, entry 2, entry 1: input should be a finite number."),
        ("picaso", "[[0, Infinity], [1, 2]]", "points, entry 1, entry 2: input should be "),
        ("picaso", "[[0, 1e7], [1, 2]]", "less than or equal to 1000000"),
        ("picaso", "[[0, 1]]", "at least 2 items"),
        ("picaso", '"all"', "points: input should be a valid list."),
        ("magic", "[[0, 1], [1, 2]]", "method: input should be 'picaso'"),
        ("picaso", '[[0, 1], [1, 2]], "path": "/etc/passwd"', "path: extra inputs are not permitted."),
        ("clusterer", "[[0, 1], [1, 2]]", "4 components need at least as many points; there are 2."),
        ("scikit-learn", "[[0, 1], [1, 2]]", "Add some, or ask for fewer components."),
    ],
)
def test_points_that_cannot_be_used_are_refused_with_the_reason(here, method, points, message):
    body = f'{{"method": "{method}", "points": {points}}}'
    answer = here.client.post("/api/cluster/fit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert message in said(answer)


@pytest.mark.parametrize("body", ["{", "", "[" * 100_000, '"\\ud800"', "9" * 5000])
def test_what_is_not_json_is_refused(here, body):
    answer = here.client.post("/api/cluster/fit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert said(answer)


@pytest.mark.parametrize("name", [*NETWORKS, "clusterer", "scikit-learn"])
@pytest.mark.parametrize("points", [[[2, 2]] * 9, [[-1e6, 1e6], [1e6, -1e6], [0, 0], [1, 1]], [[0, 0], [0, 1e-9]]])
def test_points_of_any_kind_get_a_mixture_or_a_message(here, name, points):
    answer = here.fit(points, name, components=2)
    assert answer.status_code in (200, 422)
    assert answer.status_code == 200 or said(answer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3,four\n", "The table, line 3: column y has 'four', which is not a number."),
        ("a,b\nx,y\n", "The table has no column of numbers; its columns are a, b."),
        ("x\n1\n2\n", "The table must have two columns of numbers; only x is one."),
        ("x,y\n1,2\n3\n", "The table, line 3: expected 2 values; got 1."),
        ("x,y\n1,inf\n3,4\n", "which is not finite"),
        ("x,y\n1,\n,4\n", "at least two rows with both x and y"),
        ("1,2e9\n3,4\n", "Coordinates must be within 1e+06"),
        ("1,2\n" * 5001, "The table has 5,001 rows; the page takes at most 5,000 points."),
        (" ", "The table is empty."),
        ("x,y\n", "The table has no rows."),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_its_line(here, text, message):
    answer = here.client.post("/api/cluster/csv", json={"text": text})
    assert answer.status_code == 422
    assert message in said(answer)


def test_a_table_gives_its_first_two_columns_of_numbers(here):
    answer = here.client.post("/api/cluster/csv", json={"text": "name;x;y\nu;1;2\nv;;5\nw;3;4\n"}).json()
    assert answer["points"] == [[1, 2], [3, 4]]
    assert answer["about"] == "2 points from columns x and y; 1 rows with missing values left out."


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/static/../application.py", "/static/%2e%2e/guard.py", "/rooms/cluster/room.py",
             "/static//etc/passwd", "/rooms/cluster/section.html", "/static/"],
)  # fmt: skip
def test_no_address_reaches_a_file_that_is_not_the_pages(here, path):
    assert here.client.get(path).status_code == 404


# What is served


def test_every_answer_carries_the_policy_and_the_page_keeps_it(here):
    for path in ("/", "/api/cluster/methods", "/nowhere"):
        policy = here.client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert not any(word in policy for word in ("unsafe", "data:", "blob:", "*"))
    page = here.client.get("/").text
    assert "style=" not in page
    assert "onclick" not in page
    assert page.count("<script") == page.count('<script type="module" src="/static/') == 1


def test_every_file_that_the_page_names_is_served_from_the_package(here):
    found, waiting = set[str](), ["/"]
    while waiting:
        path = waiting.pop()
        answer = here.client.get(path)
        assert answer.status_code == 200, path
        found.add(path)
        names = re.findall(r'(?:src|href)="(/[^"#]+)"|from "([^"]+)"', answer.text) if "uplot/" not in path else []
        for absolute, imported in names:
            name = absolute or (imported if imported.startswith("/") else f"{path.rpartition('/')[0]}/{imported[2:]}")
            if name not in found:
                waiting.append(name)
        if path == "/":
            waiting += [f"/rooms/{room.name}/room.js" for room in here.rooms]
    assert "/static/uplot/uPlot.esm.js" in found
    assert here.client.get("/static/uplot/LICENSE").text.startswith("The MIT License")


# Fuzzed


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # schemathesis does
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.name.lower())
def test_no_request_made_from_the_description_breaks_the_studio(here, mode):
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", here.application, headers={"Host": HOST})
    tried = set[str]()
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (list(operation.iter_parameters()) or operation.body):
            continue  # there is nothing to get wrong

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            answer = case.call(headers={"Host": HOST}, timeout=60)  # scikit-learn may still be starting
            case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])
            tried.add(case.operation.label)

        ask()
    assert "POST /api/cluster/fit" in tried


# Runs


def test_a_run_with_a_broken_file_is_told_and_the_others_are_shown(tmp_path):
    name = "clustering-ae32-pb-quick-seed0"
    for copy in ("whole", "cut", "foreign", "odd"):
        shutil.copytree(RECORDS / name, tmp_path / copy)
    (tmp_path / "cut/result.json").write_text('{"name": "clust')
    (tmp_path / "foreign/config.json").write_text('{"format": "something else"}')
    (tmp_path / "odd/metrics.jsonl").write_text('{"step": 1, "score": NaN}\n[1, 2]\n')
    (tmp_path / "secret.txt").write_text("not a run")
    with studio(tmp_path) as found:
        runs = {run["name"]: run for run in found.client.get("/api/runs/list").json()["runs"]}
        assert sorted(runs) == ["cut", "foreign", "odd", "whole"]
        assert runs["cut"]["problem"].startswith("result.json is not JSON")
        assert runs["foreign"]["problem"].startswith("config.json does not describe an experiment")
        assert "is not what it should be" in runs["odd"]["problem"]
        assert runs["whole"] | {"version": ""} == {
            "name": "whole", "kind": "clustering", "finished": True, "step": 6000, "steps": 6000,
            "score": pytest.approx(-1.6085, abs=1e-3), "version": "", "problem": None,
        }  # fmt: skip
        assert found.client.get("/api/runs/tables").json()["tables"][0]["title"].startswith("Table 2")
        answer = found.client.get("/api/runs/run/odd")
        assert answer.status_code == 422
        assert said(answer).startswith("odd cannot be read: ")


@pytest.mark.parametrize("name", ["secret.txt", "..", "../runs", "%2e%2e%2fresults", "/etc", "whole/config.json"])
def test_no_name_reaches_beyond_the_list_of_runs(here, name):
    assert here.client.get(f"/api/runs/run/{name}").status_code == 404


def test_without_runs_the_studio_opens_all_the_same(tmp_path):
    with studio(tmp_path / "nowhere") as found:
        assert found.client.get("/api/runs/list").json()["runs"] == []
        assert found.client.get("/api/runs/tables").json()["about"] == "There is no finished run to make a table of."


# Started and ended


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "Port 99999 of 127.0.0.1 cannot be used"),
        (["--host", "0.0.0.0"], "--host must be the address by which this machine is reached; got '0.0.0.0'."),
        (["--runs", "nowhere"], "--runs: there is no folder nowhere."),
    ],
)
def test_a_studio_that_cannot_start_says_why_in_one_line(arguments, message, capsys):
    assert main(["studio", "--no-browser", *arguments]) == 1
    assert capsys.readouterr().err.startswith(f"picaset: {message}")


def test_a_small_answer_is_sent_at_once():
    """Held back until the browser has acknowledged its header, it would come 40 ms later."""

    async def is_sent_at_once() -> bool:
        answered = asyncio.get_running_loop().create_future()
        listening = listen("127.0.0.1", 0)
        server = await asyncio.start_server(lambda _, writer: answered.set_result(writer), sock=listening)
        async with server:
            _, asking = await asyncio.open_connection(*listening.getsockname())
            writer = await answered
            held_back = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
            writer.close()
            asking.close()
        return not held_back

    assert asyncio.run(is_sent_at_once())


def test_ctrl_c_ends_the_studio_cleanly(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "picaset", "studio", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    said_first = process.stdout.readline()
    assert said_first.startswith("picaset studio: http://127.0.0.1:")
    address = said_first.split()[2]
    assert httpx2.get(address).status_code == 200
    process.send_signal(signal.SIGINT)
    rest, wrong = process.communicate(timeout=120)
    assert (process.returncode, rest, wrong) == (0, "The studio is closed.\n", "")
