"""Ray as the engine: every streaming law once, on a local cluster of two workers that is started for this file."""

import copy
import logging
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from picaset import (
    AmortizedMixture,
    AttentionPool,
    DeepSets,
    GeneralizedPicaso,
    InducedSelfAttention,
    MeanPool,
    Picaso,
    PicasoPool,
    SetBatch,
    SlotAttention,
    stream,
)
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.large.large_set import LargeSet, Reading
from picaset.large.rules import values_of
from picaset.large.statistics import Sums
from tests.operators import DIM, HEADS, TEMPLATES, Case, obeying
from tests.random_sets import draw_sets
from tests.test_documents import blocks
from tests.test_large_sets import EXACT, assert_same, gradients

ray = pytest.importorskip("ray")
integration = pytest.importorskip("picaset.integrations.ray")
from_dataset, pool_groups, PicasoAggregate = (
    integration.from_dataset,
    integration.pool_groups,
    integration.PicasoAggregate,
)

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # warnings are of Ray itself
every_streaming_operator = pytest.mark.parametrize("case", obeying("streaming"), ids=lambda case: case.name)
every_streaming_pool = pytest.mark.parametrize(
    "case", [case for case in obeying("streaming") if case.kind == "pool"], ids=lambda case: case.name
)
COUNT = 23


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # Others on the machine must not end workers or keep them waiting.
    os.environ |= {"RAY_memory_monitor_refresh_ms": "0", "RAY_worker_niceness": "0"}
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=2 * 10**8
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.default_hash_shuffle_parallelism = 2
    logging.getLogger("ray").setLevel("ERROR")
    yield
    ray.shutdown()


def raises(kind: type[Exception], message: str):
    return pytest.raises(kind, match=re.escape(message))


@pytest.fixture
def elements() -> torch.Tensor:
    return torch.randn(COUNT, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def pool() -> PicasoPool:
    torch.manual_seed(0)
    return PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS).double()


def in_blocks(elements: torch.Tensor, sizes=(1, 0, 13)):
    """A materialized dataset with blocks of these sizes, and one of the rest."""
    parts = elements.split([*sizes, len(elements) - sum(sizes)])
    return ray.data.from_numpy([part.numpy() for part in parts])


def encoded(dataset, column="encoded") -> torch.Tensor:
    """The encoded elements in the order of their first feature."""
    rows = dataset.to_pandas()
    order = np.argsort([vector[0] for vector in rows["data"]])
    return torch.as_tensor(np.stack(rows[column].tolist())[order])[None]


# The laws of streaming, as in test_large_sets.py


def assert_same_as_dense(case: Case, streamed, dense) -> None:
    """The same answer and gradients; without parameters there are none, and the answer is in float32, as for files."""
    if inputs := [*case.operator().parameters()]:
        assert_same(case, streamed, dense, inputs)
    else:
        assert_close(streamed, dense.float())


@every_streaming_pool
def test_blocks_of_any_size_give_the_answer_and_the_gradients_of_the_whole(case: Case, elements):
    assert_same_as_dense(case, stream(case.operator(), in_blocks(elements), 4), case.operator()(elements[None]))


@pytest.mark.parametrize(
    "case", [case for case in obeying("streaming") if case.kind == "encoder"], ids=lambda case: case.name
)
def test_encoded_elements_stay_in_the_cluster_and_are_those_of_the_whole(case: Case, elements):
    dataset = stream(case.operator(), in_blocks(elements), 4)
    assert isinstance(dataset, ray.data.Dataset)
    order = elements[:, 0].argsort()
    with torch.no_grad():
        assert_close(encoded(dataset), case.operator()(elements[None])[:, order], **EXACT)


@every_streaming_pool
def test_the_order_of_the_elements_and_of_the_blocks_does_not_matter(case: Case, elements):
    shuffled = elements[torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))]
    with torch.no_grad():
        before, after = (
            stream(case.operator(), in_blocks(x, sizes)) for x, sizes in ((elements, (7,)), (shuffled, (2, 11)))
        )
    assert_close(after, before, **(EXACT if after.dtype is torch.float64 else {}))


@every_streaming_pool
def test_large_scores_are_those_of_the_whole(case: Case, elements):
    with torch.no_grad():
        streamed, dense = stream(case.operator(), in_blocks(1e4 * elements)), case.operator()(1e4 * elements[None])
    assert streamed.isfinite().all()
    assert_close(streamed, dense.to(streamed.dtype), rtol=1e-10 if streamed.dtype is torch.float64 else 1e-5, atol=1e-6)


@every_streaming_pool
def test_a_nan_in_a_block_is_not_hidden(case: Case, elements):
    elements[4] = torch.nan
    with torch.no_grad():
        assert stream(case.operator(), in_blocks(elements)).isnan().any()


@every_streaming_pool
def test_an_empty_dataset_has_the_answer_of_the_operator(case: Case):
    with torch.no_grad():
        empty = arrow_table({name: np.zeros(0) for name in "abcdef"})
        streamed = stream(case.operator(), ray.data.from_arrow(empty))
        dense = case.operator()(torch.zeros(1, 0, DIM, dtype=torch.float64))
    assert_close(streamed, dense.to(streamed.dtype), **EXACT)


@pytest.fixture(scope="module")
def keyed(cluster):
    """Four sets, and a source of their rows, mixed and in blocks, with the number of the set as key."""
    sets = draw_sets([7, 1, 5, 9], seed=3)
    rows = torch.cat([torch.cat([torch.full((len(one), 1), i), one], 1) for i, one in enumerate(sets.sets)])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))].numpy()
    parts = [{"key": part[:, 0].astype(int), "x": part[:, 1:]} for part in np.split(rows, [4, 17])]
    return sets, from_dataset(ray.data.from_arrow([arrow_table(part) for part in parts]), by="key")


@every_streaming_pool
def test_rows_with_one_key_are_one_set_with_its_answer_and_its_gradients(case: Case, keyed):
    sets, source = keyed
    assert source.keys.tolist() == [0, 1, 2, 3]
    assert_same_as_dense(case, stream(case.operator(), source, 6), case.operator()(*sets.padded()))


def arrow_table(columns):
    import pyarrow

    vectors = {name: list(values) if values.ndim == 2 else values for name, values in columns.items()}
    return pyarrow.table(vectors)


def test_asking_for_second_derivatives_is_refused(pool, elements):
    parameters = [*pool.parameters()]
    grads = torch.autograd.grad(stream(pool, in_blocks(elements)).square().sum(), parameters, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
        sum(grad.sum() for grad in grads).backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_precision_is_that_of_the_network_whatever_that_of_the_blocks(pool, elements, dtype: torch.dtype):
    blocks = [block.numpy().astype(kind) for block, kind in zip(elements.mul(8).round().split(9), "dfi", strict=True)]
    lower = copy.deepcopy(pool).to(dtype)
    with torch.no_grad():
        streamed = stream(lower, ray.data.from_numpy(blocks))
        dense = pool(torch.as_tensor(np.concatenate(blocks), dtype=torch.float64)[None])
    assert streamed.dtype is dtype
    tolerance = 64 * torch.finfo(dtype).eps
    assert_close(streamed.double(), dense, rtol=tolerance, atol=tolerance)


def test_autocast_reaches_the_workers(elements):
    torch.manual_seed(0)
    network, elements = DeepSets(DIM, 2, dim=16), elements.float()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        here = stream(network, elements, 4)
        assert_close(stream(network, in_blocks(elements), 4), here, rtol=1e-3, atol=1e-3)
    assert not torch.equal(here, stream(network, elements, 4))


@pytest.mark.parametrize("canonicalize", [False, True])
def test_networks_of_several_layers_give_the_same_answer_and_gradients(canonicalize: bool):
    torch.manual_seed(0)
    network = MixtureNetwork(
        num_components=3, dim=8, num_heads=2, num_inducing=5, readout="moments", num_frequencies=2,
        canonicalize=canonicalize,
    ).double()  # fmt: skip
    points, inputs = torch.randn(23, 2, dtype=torch.float64) + 5, [*network.parameters()]
    streamed, dense = stream(network, in_blocks(points)), network(points[None])
    assert_close(tuple(streamed), tuple(dense), **EXACT)
    sums = [sum(part.sin().sum() for part in mixture) for mixture in (streamed, dense)]
    assert_close(gradients(sums[0], inputs), gradients(sums[1], inputs), rtol=1e-10, atol=1e-10)


def test_generalized_picaso_returns_templates_here_and_elements_there(elements):
    torch.manual_seed(0)
    cascade = GeneralizedPicaso(DIM, num_templates=TEMPLATES, num_heads=HEADS).double()
    with torch.no_grad():
        templates, dataset = stream(cascade, in_blocks(elements), spill="always")
        expected, rewritten = cascade(elements[None])
    assert_close(templates, expected, **EXACT)
    assert_close(encoded(dataset), rewritten[:, elements[:, 0].argsort()], **EXACT)


def test_the_parameters_of_a_transform_get_their_gradient(pool, elements):
    layer = torch.nn.Linear(DIM, DIM).double()
    inputs = [*layer.parameters(), *pool.parameters()]
    streamed, dense = stream(pool, in_blocks(elements), transform=layer), pool(layer(elements[None]))
    assert_close(gradients(streamed, inputs), gradients(dense, inputs), **EXACT)


# Datasets of files


@pytest.fixture
def parquet_folder(elements, tmp_path) -> Path:
    """Three files with features a to f, a patient and a name."""
    import pyarrow
    from pyarrow import parquet

    for index, part in enumerate(elements.float().split(9)):
        columns = dict(zip("abcdef", part.numpy().T, strict=True))
        patients = {"patient": [f"p{row % 4}" for row in range(len(part))], "name": ["x"] * len(part)}
        parquet.write_table(pyarrow.table(columns | patients), tmp_path / f"{index}.parquet")
    return tmp_path


def test_files_are_read_again_in_every_pass_with_the_same_answer_and_gradients(pool, elements, parquet_folder):
    pool = pool.float()
    source = from_dataset(ray.data.read_parquet(str(parquet_folder)), columns=[*"abcdef"])
    inputs = [*pool.parameters()]
    streamed, dense = stream(pool, source), pool(elements.float()[None])
    assert_close(streamed, dense, rtol=1e-5, atol=1e-5)
    assert_close(gradients(streamed, inputs), gradients(dense, inputs), rtol=1e-4, atol=1e-4)
    assert source.groups is None
    assert source.count == COUNT


def test_csv_lance_and_image_files_are_sources_too(pool, elements, tmp_path):
    image, lance, pandas = (pytest.importorskip(name) for name in ("PIL.Image", "lance", "pandas"))
    pool, elements = pool.float(), elements.float()
    pandas.DataFrame(elements.numpy()).to_csv(tmp_path / "set.csv", index=False)
    lance.write_dataset(arrow_table({"x": elements.numpy()}), tmp_path / "set.lance")
    pixels = np.random.default_rng(0).integers(0, 256, size=(5, 2, 3), dtype=np.uint8)
    (tmp_path / "images").mkdir()
    for index, values in enumerate(pixels):
        image.fromarray(values).save(tmp_path / f"images/{index}.png")

    def to_vectors(batch):
        return {"x": batch["image"].reshape(len(batch["image"]), -1) / np.float32(255)}

    images = ray.data.read_images(str(tmp_path / "images"))
    with torch.no_grad():
        for dataset, values in (
            (ray.data.read_csv(str(tmp_path / "set.csv")), elements),
            (ray.data.read_lance(str(tmp_path / "set.lance")), elements),
            (images.map_batches(to_vectors), torch.as_tensor(pixels.reshape(5, 6) / np.float32(255))),
        ):
            assert_close(stream(pool, dataset), pool(values[None]), rtol=1e-5, atol=1e-5)
    with raises(
        TypeError, "column 'image' of the Ray dataset must hold numbers, or vectors of equal length; got uint8"
    ):
        stream(pool, images)


def test_slots_sampled_in_training_are_drawn_once_for_all_blocks(elements):
    slots = SlotAttention(DIM, num_slots=3).double()
    torch.manual_seed(3)
    streamed = stream(slots, in_blocks(elements))
    torch.manual_seed(3)
    assert_close(streamed, stream(slots, elements), **EXACT)


def sets_by_patient(elements: torch.Tensor) -> SetBatch:
    rows = [(row % 9) % 4 for row in range(COUNT)]
    return SetBatch.from_list([elements[torch.tensor(rows) == patient] for patient in range(4)])


def test_groups_are_pooled_like_sets_in_memory(elements, parquet_folder):
    torch.manual_seed(0)
    pool = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=2)
    dataset = ray.data.read_parquet(str(parquet_folder)).materialize()
    table = pool_groups(pool, dataset, by="patient", columns=[*"abcdef"]).to_pandas().sort_values("patient")
    assert table["patient"].tolist() == ["p0", "p1", "p2", "p3"]
    with torch.no_grad():
        expected = pool(sets_by_patient(elements.float()))
    assert_close(torch.as_tensor(np.stack(table["pooled"].tolist())), expected, rtol=1e-5, atol=1e-5)


def test_groups_are_pooled_although_a_worker_dies(elements, parquet_folder, tmp_path):
    torch.manual_seed(0)
    pool = AttentionPool(DIM, num_templates=TEMPLATES, num_heads=HEADS)
    dying = ray.data.read_parquet(str(parquet_folder)).map_batches(die_once(tmp_path / "died"))
    table = pool_groups(pool, dying, by="patient", columns=[*"abcdef"]).to_pandas().sort_values("patient")
    assert (tmp_path / "died").exists()
    with torch.no_grad():
        expected = pool(sets_by_patient(elements.float()))
    assert_close(torch.as_tensor(np.stack(table["pooled"].tolist())), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rows", "the Ray dataset changed between passes: the rows of 3 groups differ from the first pass. Every pass"),
        ("keys", "the Ray dataset changed between passes: there is a new group, "),
    ],
)
def test_groups_that_differ_between_passes_are_refused(pool, elements, change: str, message: str):
    def transform(batch):
        noise = np.random.default_rng().normal(size=len(batch["data"]))
        if change == "rows":
            return {"x": batch["data"] + noise[:, None], "g": np.arange(len(batch["data"])) % 3}
        return {"x": batch["data"], "g": noise}

    with raises(RuntimeError, message):
        pool_groups(pool, in_blocks(elements, (9,)).map_batches(transform, batch_size=None), by="g")


def test_groups_with_wrong_contents_are_refused_in_one_line(pool, parquet_folder):
    dataset = ray.data.read_parquet(str(parquet_folder))
    with raises(ValueError, "the Ray dataset has no column 'patients'; it has a, b, c, d, e, f, patient, name."):
        pool_groups(pool, dataset, by="patients")
    with raises(ValueError, "the Ray dataset has no column 'z'; it has a, b, c, d, e, f, patient, name."):
        from_dataset(dataset, columns=["z"], by="patient")
    with raises(
        TypeError, "pool must be a PicasoPool or AttentionPool; got MeanPool. For others, use stream with from"
    ):
        pool_groups(MeanPool(), dataset, by="patient")
    with pytest.raises(ValueError, match=r"^picaset.stream: column 'name' of the Ray dataset must hold numbers, or .*"):
        pool_groups(pool, dataset, by="patient")
    with pytest.raises(ValueError, match=r"^PicasoPool: elements must have 6 features; got 3, in .*\.$"):
        pool_groups(pool, dataset, by="patient", columns=[*"abc"])


def test_a_dataset_without_rows_has_no_groups(pool):
    empty = ray.data.from_arrow(arrow_table({name: np.zeros(0) for name in [*"abcdef", "g"]}))
    assert pool_groups(pool, empty, by="g").count() == 0


def test_a_pool_of_one_step_is_one_aggregate(elements):
    torch.manual_seed(0)
    pool = AttentionPool(DIM, num_templates=TEMPLATES, num_heads=HEADS).double()
    keys = np.arange(COUNT) % 3
    tables = [
        arrow_table({"g": keys[:8], "x": elements[:8].numpy()}),
        arrow_table({"g": keys[8:], "x": elements[8:].numpy()}),
    ]
    fold = PicasoAggregate(pool, "x", by="g")
    table = ray.data.from_arrow(tables).groupby("g").aggregate(fold).to_pandas().sort_values("g")
    with torch.no_grad():
        expected = pool(SetBatch.from_list([elements[keys == key] for key in range(3)]))
    assert_close(torch.as_tensor(np.stack(table["pooled"].tolist())), expected, **EXACT)


def test_wrong_pools_are_refused_by_the_aggregate(pool):
    with raises(ValueError, "this pool has 3 steps, and each is an aggregate of its own. Call pool_groups(pool, data"):
        PicasoAggregate(pool, "x", by="g")
    with raises(
        TypeError, "pool must be a PicasoPool or AttentionPool; got MeanPool. For others, use stream with from"
    ):
        PicasoAggregate(MeanPool(), "x", by="g")


def test_a_network_is_trained_on_one_set_as_in_memory(elements):
    def losses(source) -> list[float]:
        torch.manual_seed(0)
        network, values = Picaso(DIM, 1, dim=8, num_heads=2, num_inducing=3).double(), []
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for _ in range(3):
            loss = (stream(network, source) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values

    there = losses(in_blocks(elements))
    assert there[-1] < there[0]
    assert there == pytest.approx(losses(elements), rel=1e-9)


def test_a_mixture_is_fitted_to_a_dataset_as_to_an_array(monkeypatch):
    monkeypatch.setattr("picaset.estimators.large_mixture.SAMPLE_SIZE", 300)
    generator = np.random.default_rng(0)
    points = np.concatenate([generator.normal(size=(700, 2)) + shift for shift in ([0, 0], [8, 0], [0, 8])])
    generator.shuffle(points)
    dataset = ray.data.from_numpy(np.array_split(points, 3))
    here, there = (AmortizedMixture(3, random_state=0).fit_stream(source, chunk=700) for source in (points, dataset))
    np.testing.assert_allclose(there.means_, here.means_, rtol=1e-9)
    points[1500, 1] = np.nan
    with raises(ValueError, "points must be finite; got NaN or infinity"):
        AmortizedMixture(3).fit_stream(ray.data.from_numpy(np.array_split(points, 3)))


@pytest.mark.parametrize("code", [code for _, code in blocks("python") if "import ray" in code])
def test_the_examples_in_the_documents_run(code: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


# What goes wrong


def die_once(marker: Path):
    def transform(elements: torch.Tensor) -> torch.Tensor:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return elements

    return transform


@pytest.mark.parametrize("materialized", [True, False])
def test_a_worker_that_dies_changes_nothing(pool, elements, tmp_path, materialized: bool):
    dataset = in_blocks(elements) if materialized else in_blocks(elements).map_batches(lambda batch: batch)
    with torch.no_grad():
        streamed = stream(pool, dataset, transform=die_once(tmp_path / "died"))
    assert (tmp_path / "died").exists()
    assert_close(streamed, pool(elements[None]).detach(), **EXACT)


def test_a_worker_that_dies_in_the_backward_pass_changes_no_gradient(pool, elements, tmp_path):
    marker, inputs = tmp_path / "died", [*pool.parameters()]
    marker.touch()
    streamed = stream(pool, in_blocks(elements), transform=die_once(marker))
    marker.unlink()
    streamed_gradients = gradients(streamed, inputs)
    assert marker.exists()
    assert_close(streamed_gradients, gradients(pool(elements[None]), inputs), **EXACT)


def test_a_dataset_that_differs_between_passes_is_refused(pool, elements):
    def with_noise(batch):
        return {"data": batch["data"] + np.random.default_rng().normal(size=batch["data"].shape)}

    noisy = in_blocks(elements).map_batches(with_noise)
    with raises(RuntimeError, "the Ray dataset changed between passes: its elements differ from the first pass."):
        stream(pool, noisy)
    with torch.no_grad():
        stream(pool, noisy.materialize())
    source = from_dataset(in_blocks(elements))
    stream(MeanPool(), source)
    source.groups = source.groups[1:]
    with raises(RuntimeError, "the Ray dataset changed between passes: it had 23 elements, now it has"):
        stream(MeanPool(), source)


def test_blocks_of_different_widths_are_refused(elements):
    blocks = [elements[:9].numpy(), elements[9:, :4].numpy()]
    with raises(ValueError, "all elements must have the same number of features; the Ray dataset has elements of"):
        stream(MeanPool(), ray.data.from_numpy(blocks))
    ragged = ray.data.from_arrow(arrow_table({"x": np.array([[1.0, 2.0], [3.0, 4.0]])})).materialize()
    with raises(ValueError, "PicasoPool: elements must have 6 features; those of the Ray dataset have 2."):
        stream(PicasoPool(DIM, num_templates=2, num_heads=2), ragged)


def test_columns_that_hold_no_numbers_are_refused(parquet_folder):
    dataset = ray.data.read_parquet(str(parquet_folder)).materialize()
    with raises(TypeError, "column 'patient' of the Ray dataset must hold numbers, or vectors of equal length; got"):
        stream(MeanPool(), dataset)
    with raises(ValueError, "the Ray dataset has no column 'z'; it has a, b, c, d, e, f, patient, name."):
        stream(MeanPool(), from_dataset(dataset, columns=["z"]))


def test_a_dataset_without_rows_and_columns_is_refused():
    with raises(ValueError, "the Ray dataset returned no chunks, so the number of features is unknown."):
        stream(MeanPool(), ray.data.from_items([]))


def test_keys_that_are_missing_or_new_are_refused(elements):
    table = arrow_table({"x": elements.numpy()}).append_column("g", [[None, *[1.0] * (COUNT - 1)]])
    with raises(ValueError, "column 'g' of the Ray dataset has rows without a key; filter them first."):
        from_dataset(ray.data.from_arrow(table), by="g")
    with raises(ValueError, "the Ray dataset has no rows, so it has no sets by 'g'."):
        from_dataset(ray.data.from_arrow(table.slice(0, 0)), by="g")
    source = from_dataset(ray.data.from_arrow(table.slice(1)), by="g")
    source.selection = source.selection._replace(keys=np.array([0.0, 0.5]))
    with raises(RuntimeError, "the Ray dataset changed between passes: column 'g' has new keys."):
        stream(MeanPool(), source)


def test_a_sink_for_elements_that_stay_in_the_cluster_is_refused(elements, tmp_path):
    encoder = InducedSelfAttention(DIM, 8, num_heads=2, num_inducing=3)
    with raises(ValueError, "the encoded elements of the Ray dataset stay in their partitions; call without a sink"):
        stream(encoder, in_blocks(elements), sink=tmp_path / "encoded.npy")
    keyed = from_dataset(ray.data.from_arrow(arrow_table({"g": np.arange(3), "x": np.ones((3, DIM))})), by="g")
    with raises(ValueError, "an encoder needs a dataset of one set; the Ray dataset has one for each 'g'."):
        stream(encoder, keyed)
    with raises(ValueError, "LargeSet.sample: a sample is of one set; the Ray dataset has 3."):
        AmortizedMixture(2).fit_stream(keyed)


def test_a_network_that_is_not_on_the_cpu_is_refused(elements):
    with raises(ValueError, "the parts of the Ray dataset are computed on CPUs; the network is on meta. Call .cpu()"):
        LargeSet(from_dataset(in_blocks(elements)), Reading(4, torch.float32, torch.device("meta"))).fold(
            Sums(values_of)
        )


def test_what_a_pass_returns_does_not_depend_on_the_number_of_elements(pool, elements):
    sent = set[tuple[int, int]]()
    for repeats in (1, 40):
        rows = elements.repeat(repeats, 1)
        source = from_dataset(ray.data.from_numpy([part.numpy() for part in rows.split(5)]))
        stream(pool, source)
        sent.add((source.num_tasks, source.bytes_sent // 100))
    assert len(sent) == 1


def test_many_results_are_merged_in_a_tree(pool, elements, monkeypatch):
    monkeypatch.setattr(integration, "FAN_IN", 2)
    assert_close(stream(pool, in_blocks(elements, (2, 3, 4, 5))), pool(elements[None]), **EXACT)
