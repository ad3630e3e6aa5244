"""The routes of the room: which runs there are, one run with its curves, and the tables of the paper."""

from typing import Annotated

from fastapi import APIRouter, Path

from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.runs import reading
from picaset.studio.rooms.runs.reading import RunDetail, RunList, Tables
from picaset.studio.schemas import REFUSALS, Refused


def build_runs_room(settings: Settings) -> Room:
    """The room; without a run it says how to make one."""
    return Room("runs", "Runs", router_of(settings))


def router_of(settings: Settings) -> APIRouter:
    router = APIRouter(responses=REFUSALS)
    folder = next((path for path in settings.runs if reading.run_folders(path)), settings.runs[0])

    @router.get("/list")
    def list_runs() -> RunList:
        """Every run directory below the folder that the studio was started with."""
        return reading.list_runs(folder)

    @router.get("/run/{name}")
    def one_run(name: Annotated[str, Path(min_length=1, max_length=200)]) -> RunDetail:
        """Curves and configuration of one of the runs that are listed."""
        folders = reading.run_folders(folder)
        if name not in folders:
            raise Refused(404, f"There is no run {name!r} in the list.")
        detail, problem = reading.detail_of(folders[name])
        if detail is None:
            raise Refused(422, f"{name} cannot be read: {problem}")
        return detail

    @router.get("/tables")
    def tables() -> Tables:
        """The tables of the paper, ours beside theirs, from the finished runs."""
        return reading.tables_from(settings.runs)

    return router
