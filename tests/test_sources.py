"""Sources and sinks of large sets, and the errors if something is wrong with either."""

import errno
import os
import re
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from picaset import (
    Canonicalize,
    Elementwise,
    GeneralizedPicaso,
    InducedSelfAttention,
    JanossyPool,
    MeanPool,
    Picaso,
    PicasoPool,
    SelfAttention,
    SetBatch,
    SortPool,
    stream,
)
from picaset.large.large_set import LargeSet, Reading
from picaset.large.sources import InMemory, from_hugging_face, from_lance, from_parquet, from_safetensors, open_source
from tests.operators import DIM, HEADS, TEMPLATES

pytestmark = pytest.mark.as_installed
COUNT = 23


def raises(kind: type[Exception], message: str):
    return pytest.raises(kind, match=re.escape(message))


@pytest.fixture
def elements() -> torch.Tensor:
    return torch.randn(COUNT, DIM, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def pool() -> PicasoPool:
    torch.manual_seed(0)
    return PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS)


def uneven(elements: torch.Tensor):
    """Chunks of sizes 1, 2, 3, ..., an empty one among them, all in one buffer that is used again."""
    buffer = np.empty((COUNT, DIM), np.float32)
    start, size = 0, 0
    while start < COUNT:
        part = elements[start : start + size].numpy()
        buffer[: len(part)] = part
        yield buffer[: len(part)]
        start, size = start + size, size + 1


def all_sources(elements: torch.Tensor, folder):
    np.save(folder / "set.npy", elements.numpy())
    np.save(folder / "fortran.npy", np.asfortranarray(elements.numpy()))
    np.save(folder / "wide.npy", elements.double().numpy().astype(">f8"))
    save_file({"one": elements}, folder / "set.safetensors")
    save_file({"one": torch.zeros(3, 3), "two": elements.double()}, folder / "two.safetensors")
    return {
        "tensor": elements,
        "batch of one": elements[None],
        "array": elements.numpy(),
        "memmap": np.load(folder / "set.npy", mmap_mode="r"),
        ".npy": folder / "set.npy",
        ".npy as text": str(folder / "set.npy"),
        ".npy by columns": folder / "fortran.npy",
        ".npy of another byte order": folder / "wide.npy",
        ".safetensors": folder / "set.safetensors",
        "one of several tensors": from_safetensors(folder / "two.safetensors", tensor="two"),
        "function of tensors": lambda: iter(elements.split(5)),
        "function of arrays": lambda: uneven(elements),
    }


@pytest.mark.parametrize("chunk", [1, 4, 1000, None])
def test_every_source_gives_the_same_set(elements, pool, chunk, tmp_path):
    expected = pool(elements[None])
    for name, source in all_sources(elements, tmp_path).items():
        assert_close(stream(pool, source, chunk), expected, msg=lambda text, name=name: f"{name}: {text}")


def test_parquet_gives_the_same_set(elements, pool, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {f"feature {index}": column for index, column in enumerate(elements.numpy().T)}
    parquet.write_table(pyarrow.table(columns | {"name": ["x"] * COUNT}), tmp_path / "set.parquet")
    chosen = from_parquet(tmp_path / "set.parquet", columns=list(columns))
    assert_close(stream(pool, chosen, 4), pool(elements[None]))
    with raises(ValueError, "column 'name' of"):
        stream(pool, tmp_path / "set.parquet")
    with raises(ValueError, "has no column 'other'; it has feature 0, feature 1"):
        from_parquet(tmp_path / "set.parquet", columns=["other"])
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "set.parquet").read_bytes()[:100])
    with raises(ValueError, "cut.parquet is not a complete Parquet file"):
        stream(pool, tmp_path / "cut.parquet")


def test_further_sources_give_the_same_set(elements, pool, tmp_path):
    datasets, lance, pyarrow = (pytest.importorskip(name) for name in ("datasets", "lance", "pyarrow"))
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(elements.numpy().ravel()), DIM)
    table = pyarrow.table({"x": vectors, "name": ["x"] * COUNT})
    lance.write_dataset(table.select(["x"]), tmp_path / "set.lance")
    lance.write_dataset(table, tmp_path / "named.lance")
    columns = {str(index): column for index, column in enumerate(elements.numpy().T)}
    for index, part in enumerate(elements.split(9)):
        np.save(tmp_path / f"{index}.npy", part.numpy())
    sources = {
        "Hugging Face": datasets.Dataset.from_dict({"x": elements.tolist()}),
        "Hugging Face, columns": from_hugging_face(
            datasets.Dataset.from_dict(columns | {"y": ["x"] * COUNT}), [*columns]
        ),
        "Hugging Face, iterable": datasets.Dataset.from_dict({"x": elements.tolist()}).to_iterable_dataset(),
        "DataLoader": DataLoader(elements, batch_size=4),
        "DataLoader of a TensorDataset": DataLoader(TensorDataset(elements), batch_size=4),
        "list of tensors": [*elements.split(5)],
        "list of files": [tmp_path / f"{index}.npy" for index in range(3)],
        "Lance": tmp_path / "set.lance",
        "Lance dataset": lance.dataset(tmp_path / "set.lance"),
        "Lance, columns": from_lance(tmp_path / "named.lance", columns=["x"]),
    }
    expected = pool(elements[None])
    for name, source in sources.items():
        assert_close(stream(pool, source, 4), expected, msg=lambda text, name=name: f"{name}: {text}")


def test_mistakes_in_further_sources_are_reported(elements, pool, tmp_path):
    datasets, lance, pyarrow = (pytest.importorskip(name) for name in ("datasets", "lance", "pyarrow"))
    with raises(RuntimeError, "the DataLoader changed between passes: elements 0 to 3 differ from the first pass."):
        stream(pool, DataLoader(elements, batch_size=4, shuffle=True), 4)
    with raises(TypeError, "chunk 0 of the DataLoader has 2 parts, perhaps labels. Pass a function that returns an"):
        stream(pool, DataLoader(TensorDataset(elements, elements), batch_size=4), 4)
    with raises(ValueError, "a list of files must not be empty."):
        stream(pool, [])
    np.save(tmp_path / "wide.npy", elements.numpy())
    np.save(tmp_path / "narrow.npy", elements[:, 1:].numpy())
    with raises(ValueError, "chunk 1 of the list of 2 files has 5, earlier chunks have 6."):
        stream(pool, [tmp_path / "wide.npy", tmp_path / "narrow.npy"])
    with raises(TypeError, "column 'x' of the Hugging Face dataset must hold numbers, or vectors of equal length; got"):
        stream(pool, datasets.Dataset.from_dict({"x": [[1.0], [1.0, 2.0]]}))
    with raises(ValueError, "the Hugging Face dataset has no column 'z'; it has x."):
        stream(pool, from_hugging_face(datasets.Dataset.from_dict({"x": elements.tolist()}), ["z"]))
    vectors = pyarrow.array([[1.0, 2.0], None], pyarrow.list_(pyarrow.float64(), 2))
    lance.write_dataset(pyarrow.table({"x": vectors}), tmp_path / "null.lance")
    with raises(ValueError, "vectors must not be null; 1 are. Filter these rows first."):
        stream(pool, tmp_path / "null.lance")


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_a_dask_collection_is_folded_where_it_is(elements, pool, kind):
    dask, pandas = pytest.importorskip("dask"), pytest.importorskip("pandas")
    from dask import array, dataframe

    frame = pandas.DataFrame(elements.numpy(), columns=[*"abcdef"])
    source = (
        dataframe.from_pandas(frame, npartitions=5) if kind == "frame" else array.from_array(elements.numpy(), (5, 4))
    )
    inputs = [*pool.parameters()]
    streamed, dense = stream(pool, source), pool(elements[None])
    assert_close(streamed, dense)
    assert_close(
        torch.autograd.grad(streamed.square().sum(), inputs), torch.autograd.grad(dense.square().sum(), inputs)
    )
    encoder = InducedSelfAttention(DIM, 8, num_heads=2, num_inducing=3)
    tables = dask.compute(*stream(encoder, source))
    encoded = torch.as_tensor(np.concatenate([table["encoded"] for table in tables]))[None]
    assert_close(encoded, encoder(elements[None]).detach())
    empty = dataframe.from_pandas(frame[:0], npartitions=1) if kind == "frame" else array.zeros((0, DIM))
    assert_close(stream(pool, empty), pool(elements[None, :0]))
    with raises(TypeError, "the elements of the Dask collection stay in their partitions; use LargeSet.fold and map."):
        open_source(source).chunks(3)


def test_an_empty_file_is_an_empty_set(pool, tmp_path):
    np.save(tmp_path / "set.npy", np.empty((0, DIM), np.float32))
    expected = pool(torch.zeros(1, 0, DIM))
    assert_close(stream(pool, tmp_path / "set.npy"), expected)
    assert_close(stream(pool, lambda: iter([np.empty((0, DIM))])), expected)
    with raises(
        ValueError,
        "returned no chunks, so the number of features is unknown. Return an empty set as one chunk of shape (0, D).",
    ):
        stream(pool, lambda: iter([]))


def test_a_transform_is_applied_to_every_element_on_the_way(elements, pool):
    assert_close(stream(pool, elements, 4, transform=lambda x: 2 * x + 1), pool(2 * elements[None] + 1))
    with raises(
        ValueError,
        "transform must map (B, n, D) to (B, n, E), each element by itself; it returned (1, 3, 6) for (1, 4, 6).",
    ):
        stream(pool, elements, 4, transform=lambda x: x[:, 1:])
    with raises(
        ValueError, "PicasoPool: elements must have 6 features; those of the tensor have 7 after the transform."
    ):
        stream(pool, elements, 4, transform=lambda x: torch.cat([x, x[..., :1]], dim=-1))


def test_gradients_reach_the_parameters_of_a_transform(elements, pool):
    layer = nn.Linear(DIM, DIM)
    stream(pool, elements, 4, transform=layer).sum().backward()
    found = layer.weight.grad.clone()
    layer.zero_grad()
    pool(layer(elements[None])).sum().backward()
    assert_close(found, layer.weight.grad)


@pytest.fixture
def threads_for_all(monkeypatch):
    """Chunks of any size are handed from thread to thread."""
    monkeypatch.setattr("picaset.large.sources.MIN_PREFETCHED_CHUNK", 1)


@pytest.mark.usefixtures("threads_for_all")
def test_reading_ahead_changes_nothing(elements, pool, tmp_path):
    expected = pool(elements[None])
    for name, source in all_sources(elements, tmp_path).items():
        assert_close(stream(pool, source, 3), expected, msg=lambda text, name=name: f"{name}: {text}")
    network = Picaso(DIM, 2, dim=8, num_heads=2, num_inducing=3)
    assert_close(stream(network, elements, 4, spill="always"), network(elements[None]))


@pytest.mark.usefixtures("threads_for_all")
def test_reading_ahead_leaves_no_thread_behind(elements, pool, tmp_path):
    np.save(tmp_path / "set.npy", elements.numpy())
    before = threading.active_count()
    stream(pool, tmp_path / "set.npy", 2)
    with pytest.raises(ZeroDivisionError):
        stream(pool, tmp_path / "set.npy", 2, transform=lambda x: 1 // 0)
    assert threading.active_count() == before


def test_a_bar_is_shown_for_each_pass(elements, pool, capsys):
    stream(pool, elements, 4, progress=True)
    assert "pass 3, gathering" in capsys.readouterr().err


class Changing:
    """A source that gives something else in its second pass."""

    def __init__(self, *passes) -> None:
        self.passes = iter(passes)

    def __call__(self):
        return iter([next(self.passes)])


def test_a_source_that_changes_between_passes_is_refused(elements, pool):
    other = elements.clone()
    other[-1] += 1
    with raises(
        RuntimeError, "the source Changing changed between passes: elements 20 to 22 differ from the first pass."
    ):
        stream(pool, Changing(elements, other), 4)
    with raises(
        RuntimeError, "changed between passes: it had 23 elements, now it has 20. Every pass must return the same"
    ):
        stream(pool, Changing(elements, elements[:20]), 4)


def test_a_source_that_changes_before_the_backward_pass_is_refused(elements, pool, tmp_path):
    np.save(tmp_path / "set.npy", elements.numpy())
    pooled = stream(pool, tmp_path / "set.npy", 4)
    np.save(tmp_path / "set.npy", 2 * elements.numpy())
    with raises(RuntimeError, "set.npy changed between passes: elements 0 to 3 differ from the first pass."):
        pooled.sum().backward()
    pooled = stream(pool, elements, 4)
    elements.add_(1)
    with raises(RuntimeError, "the tensor changed between passes: it was modified in place. Stream a copy of it"):
        pooled.sum().backward()


def test_a_source_that_can_be_read_once_only_is_refused(elements, pool):
    chunks = iter([elements])
    with raises(TypeError, "a list_iterator can be read only once, and a large set is read several times."):
        stream(pool, chunks)
    with raises(
        RuntimeError, "returned the same iterator again, which can be read only once. It must return a new one"
    ):
        stream(pool, lambda: chunks)
    generator = iter([elements])
    with raises(RuntimeError, "it had 23 elements, now it has 0. It can be read only once: pass a function"):
        stream(pool, lambda: (chunk for chunk in generator))


def test_chunks_that_are_no_sets_are_refused(elements, pool):
    with raises(ValueError, "all chunks must have the same number of features; chunk 1 of the source"):
        stream(pool, lambda: iter([elements, elements[:, 1:]]))
    with raises(ValueError, "PicasoPool: elements must have 6 features; those of the tensor have 5."):
        stream(pool, elements[:, 1:])
    with raises(ValueError, "every chunk must have shape (n, D); chunk 0 of the source"):
        stream(pool, lambda: iter([elements[0]]))
    with raises(TypeError, "chunk 0 of the source <lambda> must hold numbers; got <U1."):
        stream(pool, lambda: iter([np.array([["a"]])]))


def test_an_object_that_is_no_source_is_refused(elements, pool, tmp_path):
    with raises(
        TypeError, "a source must be a tensor, an array, the path of a file, a list of paths, a dataset, an iterable"
    ):
        stream(pool, 3)
    with raises(
        TypeError, "a source is one set, such as a tensor (N, D); got a SetBatch. Call the operator itself with it."
    ):
        stream(pool, SetBatch.from_list([elements]))
    with raises(TypeError, "a mask requires a tensor as source; got a mask and ndarray."):
        stream(pool, elements.numpy(), mask=torch.ones(COUNT, dtype=torch.bool))
    with raises(ValueError, "a tensor must have shape (N, D) or (B, N, D); got (6,)."):
        stream(pool, elements[0])
    with raises(TypeError, "elements must be floating-point numbers; got torch.int64"):
        stream(pool, elements.long())
    with raises(ValueError, "mask must have shape (B, N) = (1, 23)"):
        stream(pool, elements, mask=torch.ones(3, dtype=torch.bool))
    with raises(ValueError, "the array must have shape (N, D); got (23,)."):
        stream(pool, np.zeros(COUNT))
    with raises(TypeError, "the array must hold numbers; got <U1."):
        stream(pool, np.array([["a"]]))
    with raises(FileNotFoundError, "nothing.npy does not exist."):
        stream(pool, tmp_path / "nothing.npy")
    (tmp_path / "set.csv").write_text("1,2")
    with raises(
        ValueError, "set.csv must end in .npy, .safetensors, .parquet or .lance; read other formats by a function."
    ):
        stream(pool, tmp_path / "set.csv")


def test_files_that_are_not_whole_are_refused(elements, pool, tmp_path):
    all_sources(elements, tmp_path)
    for name in ("set.npy", "set.safetensors"):
        whole = (tmp_path / name).read_bytes()
        for size in (0, 5, len(whole) - 8):
            (tmp_path / name).write_bytes(whole[:size])
            with pytest.raises(ValueError, match=rf"{name}.* is not a complete"):
                stream(pool, tmp_path / name)
    with raises(
        ValueError, "two.safetensors holds 2 tensors (one, two); choose one by from_safetensors(path, tensor=...)."
    ):
        stream(pool, tmp_path / "two.safetensors")
    with raises(ValueError, "two.safetensors has no tensor 'three'; it has one, two."):
        from_safetensors(tmp_path / "two.safetensors", tensor="three")
    save_file({"flat": torch.zeros(3)}, tmp_path / "flat.safetensors")
    with raises(ValueError, "tensor 'flat' of "):
        stream(pool, tmp_path / "flat.safetensors")


def test_a_file_that_shrinks_while_it_is_read_is_refused(elements, pool, tmp_path):
    np.save(tmp_path / "set.npy", elements.numpy())
    pooled = stream(pool, tmp_path / "set.npy", 4)
    os.truncate(tmp_path / "set.npy", 200)
    with raises(ValueError, "set.npy is too short for its 23 elements; it may be truncated."):
        pooled.sum().backward()


def test_operators_that_cannot_stream_say_why_and_what_to_use(elements):
    with raises(TypeError, "every element attends to every other, so its cost grows with the square of the set size."):
        stream(SelfAttention(DIM, 8, num_heads=2), elements)
    with raises(
        TypeError,
        "Use InducedSelfAttention, which attends through a few learned points; in a network, encoder='induced'.",
    ):
        stream(Picaso(DIM, 2, dim=8, num_heads=2, encoder="self"), elements)
    with raises(
        TypeError, "JanossyPool cannot stream: it averages over tuples of elements, which may lie in different chunks."
    ):
        stream(JanossyPool(DIM), elements)
    with raises(TypeError, "SortPool cannot stream: it sorts the whole set."):
        stream(SortPool(DIM), elements)
    with raises(
        TypeError, "Linear cannot stream: no streaming rule is registered for it. If it treats every element by itself,"
    ):
        stream(nn.Sequential(nn.Linear(DIM, DIM), MeanPool()), elements)
    own = type("OwnPool", (PicasoPool,), {"advance": lambda self, templates, *inputs: templates})
    with raises(TypeError, "OwnPool cannot stream: it overrides advance, and no streaming rule is registered for it"):
        stream(own(DIM, num_templates=2, num_heads=2), elements)
    with raises(TypeError, "Canonicalize cannot stream around an encoder"):
        stream(Canonicalize(Elementwise(nn.Identity()), lambda prediction, shift, scale: prediction), elements)
    with raises(
        ValueError, "Dropout in training mode is not deterministic, and every chunk is computed several times."
    ):
        stream(nn.Sequential(Elementwise(nn.Dropout()), MeanPool()), elements)


def test_modules_one_after_the_other_read_like_one(elements):
    torch.manual_seed(0)
    network = nn.Sequential(
        Elementwise(nn.Linear(DIM, 8)),
        InducedSelfAttention(8, 8, num_heads=2, num_inducing=3),
        MeanPool(),
        nn.Linear(8, 2),
    )
    assert_close(stream(network, elements, 4), network(elements[None]))


def test_wrong_options_are_refused(elements, pool):
    with raises(ValueError, "chunk must be at least 1; got 0."):
        stream(pool, elements, 0)
    with raises(ValueError, "spill must be one of 'auto', 'always', 'never'; got 'maybe'."):
        stream(pool, elements, spill="maybe")
    with raises(ValueError, "PicasoPool returns no elements; remove sink=... from the call."):
        stream(pool, elements, sink=print)
    encoder = Elementwise(nn.Linear(DIM, 4))
    with raises(ValueError, "the result has as many elements as the array; pass sink=..., the path of a .npy"):
        stream(encoder, elements.numpy())
    with raises(TypeError, "a sink must be the path of a .npy, an array to fill, or a function; got int."):
        stream(encoder, elements, sink=3)
    with raises(
        ValueError, "the sink has shape (22, 4), which has no room for elements 20 to 22 of 1 set with 4 features."
    ):
        stream(encoder, elements, 4, sink=np.empty((22, 4)))
    with raises(ValueError, "the sink has room for 24 elements; the set has 23."):
        stream(encoder, elements, sink=np.empty((24, 4)))
    with raises(ValueError, "a .npy takes the elements of one set; there are 2. Pass an array to fill."):
        stream(encoder, elements[:22].view(2, 11, DIM), sink="never.npy")
    large = LargeSet(InMemory(elements), Reading(4, torch.float32, torch.device("cpu")))
    with raises(ValueError, "LargeSet.concatenate_features: the other set must be derived from this one by maps."):
        large.map(torch.relu).concatenate_features(large)


def test_encoded_elements_are_written_to_every_kind_of_sink(elements, tmp_path):
    torch.manual_seed(0)
    cascade = GeneralizedPicaso(DIM, num_templates=TEMPLATES, num_heads=HEADS)
    templates, encoded = cascade(elements[None])
    filled, seen = np.empty((COUNT, DIM), np.float32), []
    for sink in (tmp_path / "encoded.npy", filled, lambda chunk: seen.append(chunk)):
        found, where = stream(cascade, elements.numpy(), 4, sink=sink)
        assert_close(found, templates)
        assert where is sink
    for result in (np.load(tmp_path / "encoded.npy"), filled, torch.cat(seen, dim=1)[0].numpy()):
        assert_close(torch.from_numpy(result), encoded[0].detach())
    assert len(seen) == 6
    batch = np.empty((2, 11, DIM), np.float32)
    stream(cascade, elements[:22].view(2, 11, DIM), 4, sink=batch)
    assert_close(torch.from_numpy(batch), cascade(elements[:22].view(2, 11, DIM))[1].detach())


def test_bfloat16_is_refused_by_sinks_of_numpy(tmp_path):
    elements = torch.ones(4, 2, dtype=torch.bfloat16)
    for sink in (tmp_path / "encoded.npy", np.empty((4, 2), np.float32)):
        with pytest.raises(
            TypeError, match="the result is bfloat16, which NumPy does not have; pass a function as sink"
        ):
            stream(Elementwise(torch.nn.Identity()), elements, sink=sink)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_sink_leaves_nothing_behind(elements, tmp_path):
    encoder = Elementwise(nn.Linear(DIM, 4))
    with pytest.raises(RuntimeError, match=r"changed between passes|same iterator"):
        stream(InducedSelfAttention(DIM, 4, num_heads=2, num_inducing=2), Changing(elements, elements[:20]), 4,
               sink=tmp_path / "out.npy")  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    stream(encoder, elements, sink=tmp_path / "out.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_a_full_disk_while_layers_are_kept_is_one_clear_error_and_leaves_nothing(elements, tmp_path, monkeypatch):
    network = Picaso(DIM, 2, dim=8, num_heads=2, num_inducing=3)
    written = []

    def full(descriptor, data, offset):
        written.append(len(data))
        if len(written) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", full)
    with raises(
        OSError, f"cannot cache encoded elements in {tmp_path}; writing failed after 0 MB (No space left on device)."
    ):
        stream(network, elements, 4, spill="always", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert_close(stream(network, elements, 4, spill="never", folder=tmp_path), network(elements[None]))


def test_layers_are_cached_where_that_saves_time(elements, tmp_path, monkeypatch):
    from picaset.large import large_set

    network, decided = Picaso(DIM, 2, dim=8, num_heads=2, num_inducing=3), []
    original = large_set.Spilled.pays
    for cheap in (True, False):
        monkeypatch.setattr(
            large_set.Spilled,
            "pays",
            lambda self, computing, writing, chunk, cheap=cheap: decided.append(cheap) or cheap,
        )
        assert_close(stream(network, elements, 4, folder=tmp_path), network(elements[None]))
    assert decided == [True, True, False, False]
    reading = Reading(4, torch.float32, torch.device("cpu"), folder=tmp_path)
    large = LargeSet(InMemory(elements), reading).map(torch.relu)
    chunk = next(large.chunks("testing"))
    assert original(large_set.Spilled(large, reads=3), 1.0, 0.1, chunk)
    assert not original(large_set.Spilled(large, reads=3), 0.1, 1.0, chunk)
    monkeypatch.setattr(large_set.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10}))
    assert not original(large_set.Spilled(large, reads=3), 1.0, 0.1, chunk)
