"""The room of runs: what lies in a folder is told, what is broken too, and nothing beyond the folder."""

import json
import shutil

import pytest

from tests.studio import RECORDS, said, studio

RUN = "clustering-ae32-pb-quick-seed0"


def test_a_run_with_a_broken_file_is_listed_with_its_error_beside_the_others(tmp_path):
    for copy in ("whole", "cut", "foreign", "odd"):
        shutil.copytree(RECORDS / RUN, tmp_path / copy)
    (tmp_path / "cut/result.json").write_text('{"name": "clust')
    (tmp_path / "foreign/config.json").write_text('{"format": "something else"}')
    (tmp_path / "odd/metrics.jsonl").write_text('{"step": 1, "score": NaN}\n[1, 2]\n')
    (tmp_path / "secret.txt").write_text("not a run")
    with studio(tmp_path) as found:
        runs = {run["name"]: run for run in found.client.get("/api/runs/list").json()["runs"]}
        assert sorted(runs) == ["cut", "foreign", "odd", "whole"]
        assert runs["cut"]["problem"].startswith("result.json is not JSON")
        assert runs["foreign"]["problem"].startswith("config.json does not describe an experiment")
        assert runs["odd"]["problem"] == "metrics.jsonl: line 2 must be an object; got [1, 2]."
        assert runs["whole"] | {"version": ""} == {
            "name": "whole", "kind": "clustering", "finished": True, "step": 6000, "steps": 6000,
            "score": pytest.approx(-1.6085, abs=1e-3), "version": "", "problem": None,
        }  # fmt: skip
        assert found.client.get("/api/runs/tables").json()["tables"][0]["title"].startswith("Table 2")
        answer = found.client.get("/api/runs/run/odd")
        assert answer.status_code == 422
        assert said(answer).startswith("odd cannot be read: ")


def test_no_name_reaches_beyond_the_list_of_runs(tmp_path):
    for folder in ("runs/whole", "beside"):
        shutil.copytree(RECORDS / RUN, tmp_path / folder)
    (tmp_path / "runs/secret.txt").write_text("not a run")
    with studio(tmp_path / "runs") as found:
        assert found.client.get("/api/runs/run/whole").status_code == 200
        for name in ("secret.txt", "..", "../beside", "%2e%2e%2fbeside", "/etc", "whole/config.json"):
            assert found.client.get(f"/api/runs/run/{name}").status_code == 404, name


def test_a_table_of_smoke_runs_says_so_and_calls_nothing_the_best(tmp_path):
    run = tmp_path / "clustering-ae32-pb-quick-seed0"
    shutil.copytree(RECORDS / run.name, run)
    with studio(tmp_path) as found:
        tables = found.client.get("/api/runs/tables").json()
        assert tables["about"] == "From 1 finished run."
        assert any(cell["best"] for row in tables["tables"][0]["rows"] for cell in row)
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | {"profile": "smoke"}))
        tables = found.client.get("/api/runs/tables").json()
        assert "Their scores say nothing about the methods." in tables["about"]
        assert not any(cell["best"] for table in tables["tables"] for row in table["rows"] for cell in row)


def test_without_runs_the_studio_opens_all_the_same(tmp_path):
    with studio(tmp_path / "nowhere") as found:
        assert found.client.get("/api/runs/list").json()["runs"] == []
        assert (
            found.client.get("/api/runs/tables").json()["about"] == "There are no finished runs to build a table from."
        )
