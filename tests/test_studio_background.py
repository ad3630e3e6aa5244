"""The studio's background work: urgent and newer jobs go first, and a slow or failing job disturbs no other."""

import asyncio
import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from picaset.studio.background import LazyData, Worker, join_threads, result_or_error, start_thread
from picaset.studio.rooms.cluster.methods import FitProblem, FitProcess
from picaset.studio.rooms.cluster.schemas import MethodName
from picaset.studio.schemas import RequestError
from tests.studio import blobs


class Held:
    """Jobs that wait until they are released, and a record of those that ran."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.done = list[tuple[str, list[int]]]()

    def __call__(self, kind, items):
        self.go.wait(10)
        self.done.append((kind, items))
        return [10 * item for item in items]


def test_a_newer_gesture_replaces_an_older_one_of_its_page_and_no_other():
    held = Held()
    worker = Worker(held, ["fit"], batch_size=32)

    async def ask_all():
        first = asyncio.ensure_future(worker.submit("fit", 0))  # keeps the worker busy
        await asyncio.sleep(0.05)
        asked = [
            asyncio.ensure_future(worker.submit("fit", number, page=page, gesture=gesture))
            for number, (page, gesture) in enumerate([("mine", 1), ("yours", 1), ("mine", 3), ("mine", 2)], start=1)
        ]
        await asyncio.sleep(0.05)
        held.go.set()
        return await asyncio.gather(first, *asked, return_exceptions=True)

    first, replaced, yours, newest, late = asyncio.run(ask_all())
    worker.close()
    assert (first, yours, newest) == (0, 20, 30)
    assert [error.status for error in (replaced, late) if isinstance(error, RequestError)] == [409, 409]
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
    worker = Worker(held, ["urgent", "other"], batch_size=together)

    async def ask_all():
        asked = [asyncio.ensure_future(worker.submit("other", 0))]
        await asyncio.sleep(0.05)
        asked += [asyncio.ensure_future(worker.submit(kind, 1)) for kind in ("other", "urgent", "other", "urgent")]
        await asyncio.sleep(0.05)
        held.go.set()
        await asyncio.gather(*asked)

    asyncio.run(ask_all())
    worker.close()
    assert held.done == expected


def test_work_that_takes_too_long_is_given_up_with_a_message():
    held = Held()
    worker = Worker(held, ["fit"], seconds=0.05)
    with pytest.raises(RequestError, match=r"took longer than 0\.05 s and was stopped. Use fewer points"):
        asyncio.run(worker.submit("fit", 1))
    held.go.set()
    worker.close()


def test_a_file_that_cannot_be_read_is_reported_like_a_wrong_request():
    worker = Worker(lambda kind, items: [result_or_error(Path("nowhere").read_text) for _ in items], ["fit"])
    with pytest.raises(RequestError, match="No such file or directory: 'nowhere'"):
        asyncio.run(worker.submit("fit", 1))
    worker.close()


def test_lazy_data_can_be_awaited_or_polled_and_a_failed_load_is_tried_again():
    go, found = threading.Event(), [OSError("the disk is gone"), "faces"]

    def read():
        go.wait(10)
        one = found.pop(0)
        if isinstance(one, OSError):
            raise one
        return one

    once = LazyData("CelebA", read)
    with pytest.raises(RequestError, match="CelebA is being loaded; try again in a moment"):
        once.get_if_ready()
    reading = once.start()
    go.set()
    for wait in (reading.result, once.get_if_ready):
        with pytest.raises(RequestError, match="CelebA cannot be read: the disk is gone"):
            wait()
    asyncio.run(once.ready())
    assert once.get_if_ready() == once.wait() == "faces"
    assert found == []


def test_an_error_in_the_work_ends_neither_the_lane_nor_the_others():
    def half(kind, items):
        return [ValueError("odd") if item % 2 else item for item in items]

    worker = Worker(half, ["fit"])
    with pytest.raises(RequestError, match="odd"):
        asyncio.run(worker.submit("fit", 1))
    assert asyncio.run(worker.submit("fit", 2)) == 2
    worker.close()


def test_a_worker_that_dies_is_replaced_and_its_job_gets_an_error():
    """``SystemExit`` ends a thread, and so would a wrong number of results."""

    def run(kind, items):
        if items[0] == "exit":
            raise SystemExit
        return [] if items[0] == "none" else items

    worker = Worker(run, ["fit"])

    async def ask_all():
        for job, words in (("exit", "SystemExit"), ("none", "1 jobs of fit gave 0 results")):
            with pytest.raises(RuntimeError, match=words):
                await worker.submit("fit", job)
        assert await worker.submit("fit", 3) == 3
        assert await dead.submit("fit", 4) == 4

    dead = Worker(run, ["fit"], seconds=5)
    dead.thread = start_thread(lambda: None, name="dead")
    dead.thread.join()
    asyncio.run(ask_all())
    worker.close()
    dead.close()


def test_closing_refuses_at_once_what_runs_and_what_waits():
    begun, go_on = threading.Event(), threading.Event()

    def slow(kind, items):
        begun.set()
        go_on.wait(20)
        return items

    async def refusals() -> list[tuple[int, str]]:
        worker = Worker(slow, ["fit"])
        asked = [asyncio.ensure_future(worker.submit("fit", number)) for number in range(3)]
        await asyncio.to_thread(begun.wait, 20)
        worker.close()
        refused = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
        with pytest.raises(RequestError, match="closing"):
            await worker.submit("fit", 3)
        go_on.set()
        return [(error.status, error.message) for error in refused if isinstance(error, RequestError)]

    assert asyncio.run(refusals()) == [(503, "The studio is closing.")] * 3


def test_running_threads_are_waited_for_but_not_longer_than_allowed():
    go = threading.Event()
    thread = start_thread(go.wait, 20, name="slow")
    assert not join_threads(0.05)
    assert thread.is_alive()
    go.set()
    assert join_threads(10)
    assert not thread.is_alive()


def test_a_fit_that_takes_too_long_is_ended():
    process = FitProcess(MethodName.SCIKIT_LEARN, seconds=0)
    problem = FitProblem(np.array(blobs(2000)), 8)
    with pytest.raises(ValueError, match=r"scikit-learn took longer than 0 s and was stopped. Use fewer points\."):
        process.fit(problem)
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
    enders = [threading.Thread(target=process.stop) for _ in range(2)]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join()
    assert closed == [True]
