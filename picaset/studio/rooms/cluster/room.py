"""The routes of the room: which methods and examples there are, a mixture by one method, a cascade step by step, a CSV.

Each method is asked by a request of its own, so that each result is there when it is ready.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from picaset.studio.lane import Lane
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.cluster import examples
from picaset.studio.rooms.cluster.methods import (
    FITS,
    NETWORKS,
    FitProcess,
    Question,
    methods,
    steps_kind,
    weights_are_there,
    work,
)
from picaset.studio.rooms.cluster.schemas import (
    FARTHEST,
    MOST_COMPONENTS,
    MOST_POINTS,
    Asking,
    CascadeName,
    CsvRequest,
    Example,
    ExampleName,
    FitRequest,
    Fitted,
    Method,
    SomePoints,
    Steps,
    StepsRequest,
    as_point,
)
from picaset.studio.schemas import REFUSALS, Refused, Seed
from picaset.tables.table import table_of_csv


class Workers:
    """A thread for the networks, most urgent first, and a process for each method that fits."""

    def __init__(self) -> None:
        networks = Lane(work, [*NETWORKS, *map(steps_kind, CascadeName)], together=32)
        self.processes = {method: FitProcess(method) for method in FITS}
        self.lanes: dict[str, Lane] = dict.fromkeys(networks.waiting, networks)
        for method, process in self.processes.items():
            self.lanes[method] = Lane(process.work, [method], seconds=60)  # starting it included

    async def ask(self, kind: str, asked: Asking, components: int = 1) -> Any:
        question = Question(np.array(asked.points, dtype=np.float64), components)
        return await self.lanes[kind].ask(kind, question, page=asked.page, gesture=asked.gesture)

    def warm(self) -> None:
        """Have everything loaded, and each method asked once."""
        few = Question(np.random.default_rng(0).normal(size=(50, 2)), 2)
        for lane in set(self.lanes.values()):
            lane.warm(few)

    def close(self) -> None:
        for lane in self.lanes.values():
            lane.close()
        for process in self.processes.values():
            process.end()


def build_cluster_room(settings: Settings) -> Room | None:
    """The room, if the networks that it compares are there."""
    if not weights_are_there():
        return None
    workers = Workers()
    return Room("cluster", "Cluster", router_of(workers), warm=workers.warm, close=workers.close)


def router_of(workers: Workers) -> APIRouter:
    router = APIRouter(responses=REFUSALS)

    @router.get("/methods")
    async def list_methods() -> list[Method]:
        """Who looks at the points."""
        return methods()

    @router.get("/examples")
    async def list_examples() -> list[Example]:
        """Points to begin with."""
        return examples.examples()

    @router.get("/examples/{name}")
    async def make_example(
        name: ExampleName,
        seed: Annotated[Seed, Query()] = 0,
        components: Annotated[int, Query(ge=1, le=MOST_COMPONENTS)] = 4,
    ) -> SomePoints:
        """Points to begin with; the same for the same seed."""
        return examples.example(name, seed=seed, components=components)

    @router.post("/fit")
    async def fit(asked: FitRequest) -> Fitted:
        """Which mixture one method takes the points for."""
        found = await workers.ask(asked.method, asked, asked.components)
        return Fitted(
            method=asked.method,
            gesture=asked.gesture,
            components=found.components,
            labels=found.labels,
            log_likelihood=found.log_likelihood,
            milliseconds=found.milliseconds,
        )

    @router.post("/steps")
    async def steps(asked: StepsRequest) -> Steps:
        """What a cascade did, step by step."""
        found = await workers.ask(steps_kind(asked.method), asked)
        return Steps(method=asked.method, gesture=asked.gesture, steps=found)

    @router.post("/csv")
    def read_csv(asked: CsvRequest) -> SomePoints:
        """The points of a table: its first two columns of numbers."""
        try:
            return points_of_csv(asked.text)
        except ValueError as error:
            raise Refused(422, str(error)) from None

    return router


def points_of_csv(text: str) -> SomePoints:
    """The first two columns of numbers; rows where one is missing are left out.

    Example:
        >>> points_of_csv("name,x,y\\na,1,2\\nb,,3\\nc,4,5\\n").points
        [[1.0, 2.0], [4.0, 5.0]]
    """
    from picaset.estimators.clustered_table import columns_of_numbers

    table = table_of_csv(text, Path("The table"))
    if table.num_rows == 0:
        raise ValueError("The table has no rows.")
    if table.num_rows > MOST_POINTS:
        raise ValueError(
            f"The table has {table.num_rows:,} rows; the page takes at most {MOST_POINTS:,} points. Take a sample, or "
            "use: picaset cluster FILE"
        )
    names = columns_of_numbers(table, but=None)
    if len(names) < 2:
        raise ValueError(f"The table must have two columns of numbers; only {names[0]} is one.")
    values = table.numbers(names[:2])
    whole = values[~np.isnan(values).any(axis=1)]
    if len(whole) < 2:
        raise ValueError(f"The table must have at least two rows with both {names[0]} and {names[1]}.")
    if np.abs(whole).max() > FARTHEST:
        raise ValueError(f"Coordinates must be within {FARTHEST:g}; the largest is {np.abs(whole).max():g}.")
    left_out = len(values) - len(whole)
    about = f"{len(whole)} points from columns {names[0]} and {names[1]}"
    return SomePoints(
        points=[as_point(pair) for pair in whole],
        about=about + (f"; {left_out} rows with missing values left out." if left_out else "."),
    )
