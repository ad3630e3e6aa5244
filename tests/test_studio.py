"""The studio's API: what it answers is what the library computes, and slow, wrong or foreign requests hurt nobody."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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

from picaset.cli import main
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.operators.mixture import log_likelihood
from picaset.studio.rooms import Settings
from picaset.studio.rooms.cluster.schemas import MethodName
from picaset.studio.server import Server, open_socket, serve
from tests.studio import HOST, blobs, said, studio

NETWORKS = [name.value for name in MethodName if name.folder]
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def here(studio_weights):
    with studio(weights=studio_weights) as found:
        yield found


@pytest.fixture
def own_studio(studio_weights):
    """A studio for one test: schemathesis ends it after the test."""
    with studio(weights=studio_weights) as found:
        yield found


# What is computed


@pytest.mark.parametrize("name", NETWORKS)
def test_a_response_equals_the_prediction_of_the_shipped_network(here, name):
    points = blobs(70, shift=2)
    answer = here.fit(points, name).json()
    network = MixtureNetwork.from_pretrained(ROOT / "picaset/studio/weights" / MethodName(name).folder).float()
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


def test_the_last_step_of_a_cascade_is_the_prediction_of_the_network(here):
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


def test_networks_come_from_the_weights_folder_and_a_missing_one_is_reported(tmp_path):
    torch.manual_seed(1)
    network = MixtureNetwork(dim=16, num_heads=2, num_inducing=4, num_components=3, num_steps=5, pool="picaso")
    network.save_pretrained(tmp_path / "mixture_picaso")
    points = blobs(40)
    with studio(weights=tmp_path) as found:
        answer = found.fit(points, "picaso").json()
        expected = log_likelihood(network(torch.tensor([points])), torch.tensor([points]))
        assert answer["log_likelihood"] == pytest.approx(expected.item(), rel=1e-4)
        assert len(answer["components"]) == 3
        methods = found.client.get("/api/cluster/methods").json()
        assert {method["name"]: (method["fixed_components"], method["num_steps"]) for method in methods} == {
            "picaso": (3, 5), "clusterer": (None, 0), "scikit-learn": (None, 0),
        }  # fmt: skip
        missing = found.fit(points, "deep-sets")
        assert missing.status_code == 404
        assert said(missing) == (
            f"The network deep-sets is missing: {tmp_path / 'mixture_deep_sets'} must contain config.json and "
            "model.safetensors when the studio starts."
        )
        missing = found.client.post("/api/cluster/steps", json={"method": "picaso-canonical", "points": points})
        assert (missing.status_code, "mixture_picaso_canonical must contain" in said(missing)) == (404, True)


def test_a_network_without_attention_steps_says_so(tmp_path):
    network = MixtureNetwork(dim=16, num_heads=2, num_inducing=4, pool="attention")
    network.save_pretrained(tmp_path / "mixture_picaso")
    with studio(weights=tmp_path) as found:
        answer = found.client.post("/api/cluster/steps", json={"method": "picaso", "points": blobs(40)})
        assert (answer.status_code, said(answer)) == (422, "The network picaso has no attention steps to show.")


# Many at once


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
            {"url": "/api/viewpoints/predict", "json": {"model": "pb3", "view": view}},
            {"url": "/api/scenes/picture", "params": scene},
            {"url": "/api/scenes/predict", "json": {"model": "pb3", "scene": scene}},
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


# What is refused


def test_a_million_points_are_refused_with_what_to_do(here):
    body = b'{"method": "picaso", "points": [' + b"[0.5, 0.25], " * 999_999 + b"[1, 2]]}"
    answer = here.client.post("/api/cluster/fit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert said(answer).endswith("Use a sample of the points.")
    answer = here.fit([[0, 1]] * 5001)
    assert (answer.status_code, "at most 5000" in said(answer)) == (422, True)


@pytest.mark.parametrize(
    ("method", "points", "message"),
    [
        ("picaso", "[[0, 1], [NaN, 2]]", "points, entry 2, entry 1: input should be a finite number."),
        ("picaso", "[[0, Infinity], [1, 2]]", "points, entry 1, entry 2: input should be "),
        ("picaso", "[[0, 1e10], [1, 2]]", "less than or equal to 1000000000"),
        ("picaso", "[[0, 1]]", "at least 2 items"),
        ("picaso", '"all"', "points: input should be a valid list."),
        ("magic", "[[0, 1], [1, 2]]", "method: input should be 'picaso'"),
        ("picaso", '[[0, 1], [1, 2]], "path": "/etc/passwd"', "path: extra inputs are not permitted."),
        ("clusterer", "[[0, 1], [1, 2]]", "4 components need at least 4 points; got 2."),
        ("scikit-learn", "[[0, 1], [1, 2]]", "Add points, or choose fewer components."),
    ],
)
def test_points_that_cannot_be_used_are_refused_with_the_reason(here, method, points, message):
    body = f'{{"method": "{method}", "points": {points}}}'
    answer = here.client.post("/api/cluster/fit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert message in said(answer)


@pytest.mark.parametrize("name", [*NETWORKS, "clusterer", "scikit-learn"])
@pytest.mark.parametrize("points", [[[2, 2]] * 9, [[-1e9, 1e9], [1e9, -1e9], [0, 0], [1, 1]], [[0, 0], [0, 1e-9]]])
def test_points_of_any_kind_get_a_mixture_or_a_message(here, name, points):
    answer = here.fit(points, name, components=2)
    assert answer.status_code in (200, 422)
    assert answer.status_code == 200 or said(answer)


def test_covariances_are_of_the_chosen_type(here):
    random = np.random.default_rng(0)
    slanted = random.standard_normal((200, 2)) @ [[3.0, 2.5], [0.0, 1.0]]
    points = np.concatenate([slanted, random.standard_normal((100, 2)) + np.array([0, 12])]).round(4).tolist()
    for name in ("clusterer", "scikit-learn"):
        found = {
            kind: np.array(
                [
                    component["covariance"]
                    for component in here.fit(points, name, components=2, covariance=kind).json()["components"]
                ]
            )
            for kind in ("auto", "spherical", "diag", "tied", "full")
        }
        xx, xy, yy = found["spherical"].T
        np.testing.assert_array_equal(xx, yy)
        assert (xy == 0).all()
        assert (found["diag"][:, 1] == 0).all()
        assert (found["diag"][0] != found["diag"][1]).any()
        np.testing.assert_array_equal(found["tied"][0], found["tied"][1])
        assert found["tied"][0, 1] > 1
        assert found["full"][0, 1] > 5 > found["full"][1, 1]
        np.testing.assert_allclose(found["auto"], found["full"], rtol=0.02, atol=0.02)
    answer = here.fit(points, "clusterer", covariance="round")
    assert (answer.status_code, "covariance: input should be 'auto'" in said(answer)) == (422, True)


def test_noise_is_labelled_where_a_method_has_it(here):
    random = np.random.default_rng(0)
    far = random.uniform(-20, 20, (15, 2))
    points = [*blobs(200), *far.round(4).tolist()]
    labels = np.array(here.fit(points, "clusterer", components=4, noise=True).json()["labels"])
    assert (labels[200:] == -1).sum() > 10
    assert (labels[:200] == -1).sum() < 10
    for name, noise in (("clusterer", False), ("scikit-learn", True), ("picaso", True)):
        assert min(here.fit(points, name, components=4, noise=noise).json()["labels"]) >= 0


def test_a_fit_is_judged_by_what_the_points_call_for(here):
    random = np.random.default_rng(0)
    long = random.standard_normal((300, 2)) * [12.0, 0.2]
    points = np.concatenate([long, long[:, ::-1] + [0, 40]]).round(4).tolist()
    circles = here.fit(points, "clusterer", components=4, covariance="spherical").json()
    assert circles["reference"] > circles["log_likelihood"] + 0.3
    ellipses = here.fit(points, "clusterer", components=2).json()
    assert ellipses["reference"] == pytest.approx(ellipses["log_likelihood"], abs=0.01)
    assert ellipses["reference"] == pytest.approx(circles["reference"])


def test_coordinates_of_maps_in_metres_are_fitted(here):
    places = (np.array(blobs(200)) * 100 + [691_600.25, 5_336_000.5]).round(2)
    table = "east,north\n" + "".join(f"{east},{north}\n" for east, north in places.tolist())
    points = here.client.post("/api/cluster/csv", json={"text": table}).json()["points"]
    assert points == places.tolist()
    answer = here.fit(points, "clusterer", components=4).json()
    assert sorted(np.bincount(answer["labels"]).tolist()) == [50] * 4
    means = np.array([component["mean"] for component in answer["components"]]) - [691_600.25, 5_336_000.5]
    np.testing.assert_allclose(np.sort(np.abs(means).ravel()), 300, atol=20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3,four\n", "The table, line 3: column y has 'four', which is not a number."),
        ("a,b\nx,y\n", "The table has no column of numbers; its columns are a (text), b (text)."),
        ("x\n1\n2\n", "The table must have two numeric columns; only x is numeric."),
        ("x,y\n1,2\n3\n", "The table, line 3: expected 2 values; got 1."),
        ("x,y\n1,inf\n3,4\n", "which is not finite"),
        ("x,y\n1,\n,4\n", "at least two rows with both x and y"),
        ("1,2e9\n3,4\n", "Coordinates must be within 1e+09"),
        ("1,2\n" * 5001, "The table has 5,001 rows; the page accepts at most 5,000 points."),
        (" ", "The table is empty."),
        ("", "The table is empty."),
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


# Fuzzed


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # schemathesis does
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.name.lower())
def test_no_request_made_from_the_description_breaks_the_studio(own_studio, mode):
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", own_studio.application, headers={"Host": HOST})
    tried = set[str]()
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (list(operation.iter_parameters()) or operation.body):
            continue  # there is nothing to get wrong

        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            answer = case.call(headers={"Host": HOST}, timeout=60)  # scikit-learn may still be starting
            case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])
            tried.add(case.operation.label)

        ask()
    assert "POST /api/cluster/fit" in tried


# Started and ended


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "Port 99999 of 127.0.0.1 cannot be used"),
        (["--host", "0.0.0.0"], "--host must be one address of this machine, such as 127.0.0.1; got '0.0.0.0'"),
        (["--host", "0"], "--host must be one address of this machine, such as 127.0.0.1; got '0', which means all"),
        (["--host", ""], "--host must be one address of this machine, such as 127.0.0.1; got '', which means all"),
        (["--host", "0.0"], "--host must be one address of this machine, such as 127.0.0.1; got '0.0', which means"),
        (["--host", "999.1.1.1"], "--host must be one address of this machine, such as 127.0.0.1; got '999.1.1.1' ("),
        (["--runs", "nowhere"], "--runs: there is no folder nowhere."),
    ],
)
def test_a_studio_that_cannot_start_says_why_in_one_line(arguments, message, capsys):
    assert main(["studio", "--no-browser", *arguments]) == 1
    assert capsys.readouterr().err.startswith(f"picaset: {message}")


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n[1"]
)
def test_a_client_that_does_not_send_its_request_is_disconnected_and_others_are_served(monkeypatch, sent):
    monkeypatch.setattr("picaset.studio.server.REQUEST_SECONDS", 0.3)

    async def answer_nothing(scope, receive, send):
        if scope["type"] == "http":
            while (await receive())["type"] != "http.disconnect":
                pass

    async def talk() -> bytes:
        listening = open_socket("127.0.0.1", 0)
        closed = threading.Event()
        server = Server(answer_nothing, ready=lambda: None, closing=closed.set)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            server.should_exit = True
            await serving
            listening.close()

    assert asyncio.run(talk()) == b""


@pytest.mark.parametrize(("host", "is_told"), [("127.0.0.1", False), ("localhost", False), ("192.168.1.2", True)])
def test_opening_the_studio_to_a_network_prints_a_warning(monkeypatch, host, is_told):
    monkeypatch.setattr("picaset.studio.server.open_socket", lambda host, port: open_socket("127.0.0.1", port))
    monkeypatch.setattr("picaset.studio.server.build_rooms", lambda settings: [])
    monkeypatch.setattr(Server, "run", lambda server, sockets: server.ready())
    monkeypatch.setattr("picaset.studio.server.join_threads", lambda seconds: True)  # those of other tests
    lines = list[str]()
    serve(Settings(), host=host, browser=False, output=lines.append)
    expected = f"Anybody on the network who can reach {host} can use this studio; there is no password."
    assert (expected in lines) == is_told


def test_a_small_answer_is_sent_at_once():
    """Held back until the browser has acknowledged its header, it would come 40 ms later."""

    async def is_sent_at_once() -> bool:
        answered = asyncio.get_running_loop().create_future()
        listening = open_socket("127.0.0.1", 0)
        server = await asyncio.start_server(lambda _, writer: answered.set_result(writer), sock=listening)
        async with server:
            _, asking = await asyncio.open_connection(*listening.getsockname())
            writer = await answered
            held_back = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
            writer.close()
            asking.close()
        return not held_back

    assert asyncio.run(is_sent_at_once())


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")  # another test may have imported it
def test_ctrl_c_ends_the_studio_cleanly_while_its_processes_start_and_refuses_what_waits():
    process = subprocess.Popen(
        [sys.executable, "-m", "picaset", "studio", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    said_first = process.stdout.readline()
    assert said_first.startswith("picaset studio: http://127.0.0.1:")
    address = said_first.split()[2]
    assert httpx2.get(address).status_code == 200
    asked = {"method": "scikit-learn", "points": blobs()}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(httpx2.post, f"{address}/api/cluster/fit", json=asked, timeout=120)
        time.sleep(1)  # until it waits, and the process that is to fit imports
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        rest, wrong = process.communicate(timeout=120)
    # Triton, if it is installed and imported, reports leaks of its own bindings when a process is interrupted.
    wrong = [line for line in wrong.splitlines() if not re.match(r"nanobind: | - |See https://nanobind", line)]
    assert (process.returncode, rest, wrong) == (0, "Closing the studio ...\nThe studio is closed.\n", [])
    assert (waiting.result().status_code, said(waiting.result())) == (503, "The studio is closing.")
