"""The studio's application: accepted hosts, origins and sizes, and the files that are served, under a strict policy."""

import re

import pytest

from picaset.studio.application import MAX_BODY_BYTES
from picaset.studio.server import accepted_hosts
from tests.studio import HOST, blobs, said, studio


@pytest.fixture(scope="module")
def here(studio_weights):
    with studio(weights=studio_weights) as found:
        yield found


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:9999", ""])
def test_a_foreign_host_is_refused(here, host):
    answer = here.client.get("/", headers={"Host": host})
    assert answer.status_code == 403
    assert said(answer) == f"The studio does not accept requests for host {host!r}; open it at http://{HOST}."


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
    assert accepted_hosts("localhost", 80) == [
        "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "localhost", "localhost:80",
    ]  # fmt: skip
    assert "localhost" not in accepted_hosts("localhost", 8080)


def test_a_large_body_is_refused_and_so_is_one_that_does_not_say_its_length(here):
    large, headers = b"[" * (MAX_BODY_BYTES + 1), {"Content-Type": "application/json"}
    answer = here.client.post("/api/cluster/fit", content=large, headers=headers)
    assert answer.status_code == 413
    assert "at most 1 MB; got 1.0 MB" in said(answer)
    answer = here.client.post("/api/cluster/fit", content=(large[:1000] for _ in range(2000)), headers=headers)
    assert answer.status_code == 411
    assert said(answer) == "A request must state its length in the header Content-Length."


@pytest.mark.parametrize("body", ["{", "", "[" * 100_000, '"\\ud800"', "9" * 5000])
def test_a_body_that_is_not_json_is_refused(here, body):
    answer = here.client.post("/api/cluster/fit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert said(answer)


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/static/../application.py", "/static/%2e%2e/server.py", "/rooms/cluster/room.py",
             "/static//etc/passwd", "/rooms/cluster/section.html", "/static/"],
)  # fmt: skip
def test_no_address_reaches_a_file_that_is_not_the_pages(here, path):
    assert here.client.get(path).status_code == 404


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
