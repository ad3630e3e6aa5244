"""Routes of the cluster room: methods, examples, the fit of one method, its attention steps, points from a CSV table.

The page sends one request per method, so that each result is shown as soon as it is ready.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from picaset.studio.background import Worker
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.cluster.examples import draw_example
from picaset.studio.rooms.cluster.methods import FITS, STEPS, FitProblem, FitProcess, MixtureNetworks
from picaset.studio.rooms.cluster.schemas import (
    MAX_COMPONENTS,
    MAX_COORDINATE,
    MAX_POINTS,
    CsvRequest,
    ExampleName,
    FitRequest,
    FitResponse,
    Method,
    MethodName,
    PointsRequest,
    PointsResponse,
    StepsRequest,
    StepsResponse,
    round_point,
)
from picaset.studio.schemas import ERROR_RESPONSES, Option, RequestError, Seed
from picaset.tables.table import choose_columns, table_from_csv_text


class Workers:
    """One worker thread for the networks, and a process with its worker for each method that fits iteratively."""

    def __init__(self, networks: MixtureNetworks) -> None:
        worker = Worker(networks.run, networks.kinds(), batch_size=32)
        self.processes = {method: FitProcess(method) for method in FITS}
        self.by_kind: dict[str, Worker] = dict.fromkeys(worker.queues, worker)
        for method, process in self.processes.items():
            self.by_kind[method] = Worker(process.run, [method], seconds=60)  # starting the process included

    async def submit(self, kind: str, request: PointsRequest) -> Any:
        if kind not in self.by_kind:
            raise RequestError(422, f"The network {kind.removesuffix(STEPS)} has no attention steps to show.")
        problem = FitProblem(np.array(request.points, dtype=np.float64), 1)
        if isinstance(request, FitRequest):
            problem = FitProblem(problem.points, request.components, request.covariance, request.noise)
        return await self.by_kind[kind].submit(kind, problem, page=request.page, gesture=request.gesture)

    def warm(self) -> None:
        """Load everything by running each method once."""
        problem = FitProblem(np.random.default_rng(0).normal(size=(50, 2)), 2)
        for worker in set(self.by_kind.values()):
            worker.warm(problem)

    def close(self) -> None:
        for worker in self.by_kind.values():
            worker.close()
        for process in self.processes.values():
            process.stop()


def build_cluster_room(settings: Settings) -> Room | None:
    """Build the room if at least one of its networks exists."""
    folders = settings.find_networks(MethodName)
    if not folders:
        return None
    networks = MixtureNetworks(folders)
    workers = Workers(networks)
    router = create_router(settings, networks, workers)
    return Room("cluster", "Cluster", router, warm=workers.warm, close=workers.close)


def create_router(settings: Settings, networks: MixtureNetworks, workers: Workers) -> APIRouter:
    router = APIRouter(responses=ERROR_RESPONSES)

    @router.get("/methods")
    def list_methods() -> list[Method]:
        """List the available methods."""
        return networks.list_methods()

    @router.get("/examples")
    async def list_examples() -> list[Option]:
        """List the examples."""
        return [Option.of(name) for name in ExampleName]

    @router.get("/examples/{name}")
    async def example_points(
        name: ExampleName,
        seed: Annotated[Seed, Query()] = 0,
        components: Annotated[int, Query(ge=1, le=MAX_COMPONENTS)] = 4,
    ) -> PointsResponse:
        """Draw the points of an example; equal seeds give equal points."""
        return draw_example(name, seed=seed, components=components)

    @router.post("/fit")
    async def fit(request: FitRequest) -> FitResponse:
        """Fit a mixture to the points with one method."""
        settings.check_network(request.method, networks.folders)
        result = await workers.submit(request.method, request)
        return FitResponse(method=request.method, gesture=request.gesture, **dict(result))

    @router.post("/steps")
    async def steps(request: StepsRequest) -> StepsResponse:
        """Compute the mixture and the attention after each step of a network."""
        settings.check_network(MethodName(request.method), networks.folders)
        result = await workers.submit(f"{request.method}{STEPS}", request)
        return StepsResponse(method=request.method, gesture=request.gesture, steps=result)

    @router.post("/csv")
    def read_csv(request: CsvRequest) -> PointsResponse:
        """Read points from the first two numeric columns of a table."""
        try:
            return parse_points(request.text)
        except ValueError as error:
            raise RequestError(422, str(error)) from None

    return router


def parse_points(text: str) -> PointsResponse:
    """Read points from the first two numeric columns of a table; rows with a missing value are left out.

    Example:
        >>> parse_points("name,x,y\\na,1,2\\nb,,3\\nc,4,5\\n").points
        [[1.0, 2.0], [4.0, 5.0]]
    """
    table = table_from_csv_text(text, Path("The table"))
    if table.num_rows == 0:
        raise ValueError("The table has no rows.")
    if table.num_rows > MAX_POINTS:
        raise ValueError(
            f"The table has {table.num_rows:,} rows; the page accepts at most {MAX_POINTS:,} points. Use a sample, or "
            "run: picaset cluster FILE"
        )
    names, _ = choose_columns(table)
    if len(names) < 2:
        raise ValueError(f"The table must have two numeric columns; only {names[0]} is numeric.")
    values = table.numbers(names[:2])
    complete = values[~np.isnan(values).any(axis=1)]
    if len(complete) < 2:
        raise ValueError(f"The table must have at least two rows with both {names[0]} and {names[1]}.")
    if np.abs(complete).max() > MAX_COORDINATE:
        raise ValueError(
            f"Coordinates must be within {MAX_COORDINATE:g}; the largest is {np.abs(complete).max():g}. Rescale them."
        )
    dropped = len(values) - len(complete)
    about = f"{len(complete)} points from columns {names[0]} and {names[1]}"
    return PointsResponse(
        points=[round_point(pair) for pair in complete],
        about=about + (f"; {dropped} rows with missing values left out." if dropped else "."),
    )
