"""Routes of the room: the list of runs, one run with its curves, the tables of the paper."""

from typing import Annotated

from fastapi import APIRouter, Path

from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.runs import reading
from picaset.studio.rooms.runs.reading import PaperTables, RunDetail, RunList
from picaset.studio.schemas import ERROR_RESPONSES, RequestError


def build_runs_room(settings: Settings) -> Room:
    """Build the room; without any run, it explains how to train one."""
    return Room("runs", "Runs", create_router(settings))


def create_router(settings: Settings) -> APIRouter:
    router = APIRouter(responses=ERROR_RESPONSES)
    folder = next((path for path in settings.runs if reading.find_runs(path)), settings.runs[0])

    @router.get("/list")
    def list_runs() -> RunList:
        """List the runs of the folder that the studio was started with."""
        return reading.list_runs(folder)

    @router.get("/run/{name}")
    def read_run(name: Annotated[str, Path(min_length=1, max_length=200)]) -> RunDetail:
        """Return curves and configuration of a run in the list."""
        runs = reading.find_runs(folder)
        if name not in runs:
            raise RequestError(404, f"There is no run {name!r} in the list.")
        detail, problem = reading.read_or_explain(lambda: reading.read_detail(runs[name]), runs[name])
        if detail is None:
            raise RequestError(422, f"{name} cannot be read: {problem}")
        return detail

    @router.get("/tables")
    def tables() -> PaperTables:
        """Build the tables of the paper from the finished runs."""
        return reading.build_tables(settings.runs)

    return router
