"""Law 6 over ranks: one set spread over processes gives the same answer and the same gradients as in one.

Every law runs all operators in one group of processes, since starting them takes longer than the mathematics.
"""

import datetime
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

from picaset import GeneralizedPicaso, MeanPool, Picaso, PicasoPool, shard
from tests.operators import DIM, obeying
from tests.processes import run_ranks
from tests.random_sets import draw_sets
from tests.test_large_sets import EXACT, gradients

SPLITS = {1: [12], 2: [4, 8], 3: [0, 12, 0], 4: [1, 0, 6, 5]}
"""Elements of each rank; some have none."""


def parts_of(size: int) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *SPLITS[size]]).tolist()
    return list(pairwise(ends))


def compare_all(rank: int, size: int, chunk: int | None, scale: float) -> list[str]:
    """The operators that differ on this rank."""
    elements, mask = draw_sets([10, 3], seed=size).padded()
    elements = scale * elements
    start, stop = parts_of(size)[rank]
    wrong = []
    for case in obeying("streaming"):
        operator = case.operator()
        whole, part = elements.clone().requires_grad_(), elements[:, start:stop].clone().requires_grad_()
        dense = operator(whole, mask)
        sharded = shard(operator, timeout=60)(part, mask[:, start:stop], chunk=chunk)
        parameters = [*operator.parameters()]
        if case.kind == "encoder":
            dense = dense[:, start:stop]
            weights = torch.linspace(-1, 2, dense.numel(), dtype=dense.dtype).reshape(dense.shape)
            everything = [None] * size
            dist.all_gather_object(everything, (start, stop, weights))
            full = operator(whole, mask)
            expected = torch.autograd.grad(
                sum((full[:, a:b] * one).sum() for a, b, one in everything), [whole, *parameters], allow_unused=True
            )
            found = torch.autograd.grad((sharded * weights).sum(), [part, *parameters], allow_unused=True)
        else:
            expected, found = gradients(dense, [whole, *parameters]), gradients(sharded, [part, *parameters])
        expected = [expected[0][:, start:stop], *expected[1:]]
        try:
            tolerances = EXACT if scale == 1 else dict(rtol=1e-9, atol=1e-3)
            assert_close(sharded, dense, **tolerances)
            for one, other in zip(found, expected, strict=True):
                zero = torch.zeros(())
                assert_close(zero.double() if one is None else one, zero.double() if other is None else other,
                             **tolerances) if (one is None) == (other is None) else None  # fmt: skip
        except AssertionError as error:
            wrong.append(f"{case.name}: {error}")
    return wrong


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_set_over_ranks_has_the_answer_and_the_gradients_of_the_whole(size: int):
    assert run_ranks(compare_all, size, None, 1.0) == [[]] * size


def test_streaming_inside_each_rank_changes_nothing():
    assert run_ranks(compare_all, 3, 2, 1.0) == [[]] * 3


def test_large_scores_over_ranks_are_those_of_the_whole():
    assert run_ranks(compare_all, 2, None, 1e4) == [[]] * 2


def pool_from_files(rank: int, size: int, folder: str) -> torch.Tensor:
    torch.manual_seed(0)
    return shard(PicasoPool(DIM, num_templates=2, num_heads=2))(f"{folder}/{rank}.npy", chunk=3).detach()


def test_each_rank_may_read_its_own_file(tmp_path):
    elements = torch.randn(11, DIM)
    for rank, part in enumerate((elements[:4], elements[4:])):
        np.save(tmp_path / f"{rank}.npy", part.numpy())
    torch.manual_seed(0)
    expected = PicasoPool(DIM, num_templates=2, num_heads=2)(elements[None]).detach()
    for found in run_ranks(pool_from_files, 2, str(tmp_path)):
        assert_close(found, expected)


def traffic(rank: int, size: int, count: int) -> tuple[int, int]:
    torch.manual_seed(0)
    sharded = shard(PicasoPool(DIM, num_templates=2, num_heads=2, num_steps=3))
    with torch.no_grad():
        sharded(torch.randn(count, DIM))
    return sharded.ranks.reductions, sharded.ranks.bytes


def test_two_reductions_a_pass_whatever_the_size_of_the_set():
    small, large = run_ranks(traffic, 2, 10), run_ranks(traffic, 2, 5000)
    assert small == large
    assert small[0][0] == 3 * 2


def train_on_a_mesh(rank: int, size: int) -> list[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "set"))
    torch.manual_seed(0)
    network = Picaso(DIM, 3, dim=8, num_heads=2, num_inducing=3).double()
    sets = torch.randn(2, 9, DIM, dtype=torch.float64)
    mine = sets[mesh.get_local_rank("data")][[slice(0, 2), slice(2, 9)][mesh.get_local_rank("set")]]
    trained = DistributedDataParallel(shard(network, mesh), process_group=mesh.get_group("data"))
    trained(mine[None]).square().sum().backward()
    return [parameter.grad for parameter in network.parameters()]


def test_sets_over_one_dimension_of_a_mesh_and_data_over_the_other():
    torch.manual_seed(0)
    network = Picaso(DIM, 3, dim=8, num_heads=2, num_inducing=3).double()
    sets = torch.randn(2, 9, DIM, dtype=torch.float64)
    (network(sets).square().sum() / 2).backward()  # the mean over two groups, each with one set
    for found in run_ranks(train_on_a_mesh, 4):
        assert not isinstance(found, str), found
        assert_close(found, [parameter.grad for parameter in network.parameters()], **EXACT)


def sample_slots(rank: int, size: int) -> torch.Tensor:
    from picaset import SlotAttention

    torch.manual_seed(0)
    slots = SlotAttention(DIM, num_slots=3, initial="sampled").train()
    torch.manual_seed(rank)
    return shard(slots)(torch.ones(3, DIM)).detach()


def test_sampled_slots_are_the_same_on_every_rank():
    first, second = run_ranks(sample_slots, 2)
    assert_close(first, second)


def wait_for(path: Path, seconds: float = 60.0) -> None:
    """Wait until a file exists: a rank that does so is late for every reduction, however busy the machine is."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path.name} was not written")
        time.sleep(0.02)


def lose_a_rank(rank: int, size: int, how: str, folder: str) -> str:
    failed = Path(folder, "failed")
    sharded = shard(MeanPool(), timeout=60)
    sharded(torch.ones(2, DIM))
    sharded.ranks.timeout = datetime.timedelta(seconds=1)  # only now, because both ranks must have arrived before
    if rank == 1:
        if how == "dies":
            os._exit(1)
        wait_for(failed)
        return "late"
    began = time.monotonic()
    try:
        sharded(torch.ones(2, DIM))
    except RuntimeError as error:
        return f"{time.monotonic() - began:.0f} {type(error).__name__} {error}"
    finally:
        failed.touch()
    return "finished"


@pytest.mark.parametrize("how", ["dies", "is late"])
def test_a_rank_that_is_lost_ends_the_others_within_the_timeout(how: str, tmp_path: Path):
    result = run_ranks(lose_a_rank, 2, how, str(tmp_path))[0]
    seconds, kind, *message = result.split(" ")
    assert int(seconds) <= 5
    assert kind == "RankLostError"
    assert " ".join(message).startswith(
        "rank 0 of 2: another rank failed or did not respond within 1 s; check the output of the other ranks."
    )


def never_arrive(rank: int, size: int, folder: str) -> str:
    failed = Path(folder, "failed")
    if rank == 1:
        wait_for(failed)
        return "late"
    try:
        return str(shard(MeanPool(), timeout=1)(torch.ones(2, DIM)))
    finally:
        failed.touch()


def test_a_rank_that_never_arrives_ends_the_others_within_the_timeout(tmp_path: Path):
    assert run_ranks(never_arrive, 2, str(tmp_path))[0].startswith(
        "RankLostError: rank 0 of 2: another rank failed or did not respond within 1 s"
    )


def disagree(rank: int, size: int, about: str) -> str:
    torch.manual_seed(rank if about == "the weights" else 0)
    wide = about == "the class and the shapes of the model" and rank == 1
    pool = PicasoPool(DIM, num_templates=3 if wide else 2, num_heads=2)
    if about == "which parameters need gradients" and rank == 1:
        pool.templates.requires_grad_(False)
    sets = 2 if about == "the number of sets" and rank == 1 else 1
    width = DIM + 1 if about == "the number of features" and rank == 1 else DIM
    return str(shard(pool, timeout=30)(torch.ones(sets, 2, width)))


@pytest.mark.parametrize(
    "about",
    [
        "the class and the shapes of the model",
        "which parameters need gradients",
        "the weights",
        "the number of sets",
        "the number of features",
    ],
)
def test_ranks_that_disagree_fail_before_the_first_reduction(about: str):
    for found in run_ranks(disagree, 2, about):
        assert found.startswith(f"RanksDisagreeError: picaset.shard: the ranks disagree about {about}: rank 0 ")


def test_without_a_process_group_the_error_says_how_to_start_one():
    with pytest.raises(RuntimeError, match=r"torch.distributed is not initialized. Start with torchrun"):
        shard(GeneralizedPicaso(DIM, num_templates=2, num_heads=2))


def wrong_options(rank: int, size: int) -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh

    mesh, found = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model")), []
    for options in ({"timeout": 0}, {"group": mesh}):
        try:
            shard(MeanPool(), **options)
        except ValueError as error:
            found.append(str(error))
    return found


def test_wrong_options_are_refused():
    assert run_ranks(wrong_options, 1) == [
        [
            "picaset.shard: timeout must be positive; got 0.",
            "picaset.shard: a device mesh must have one dimension, or one that is named 'set'; got ('data', 'model').",
        ]
    ]
