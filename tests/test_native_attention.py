"""The kernel in C: it equals the plain equation, serves large sets, and is left out where it cannot be used."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from picaset import PicasoPool, SetBatch
from picaset.operators import attention as kernels
from picaset.operators import native_attention
from picaset.operators.native_attention import SOURCE, backward, forward, plan_jobs, serves

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def enabled(monkeypatch):
    """Use the kernel for problems of all sizes."""
    monkeypatch.setattr(native_attention, "WORK_OF_A_THREAD", 1)
    monkeypatch.setitem(kernels.DEVICE_KERNELS, "cpu", kernels.DeviceKernel(forward, backward, serves))


class OtherTensor(torch.Tensor):
    """A tensor whose memory may not be its values."""


def draw(sets: int, count: int, num_queries: int, features: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(sets, num_queries, features), (sets, count, features), (sets, num_queries, features)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def plain(queries, elements, mask, grad):
    inputs = [queries.double().requires_grad_(), elements.double().requires_grad_()]
    mask = mask if mask is None or mask.dtype is torch.bool else mask.double()
    output = kernels.plain_attention(inputs[0][:, None], inputs[1][:, None], inputs[1][:, None], mask)[:, 0]
    return [result.float() for result in (output.detach(), *torch.autograd.grad(output, inputs, grad.double()))]


def both_passes(queries, elements, mask, grad, offsets=None):
    mean, log = forward(queries, elements, mask, offsets)
    grad_elements = torch.ones_like(elements)
    arguments = (queries, elements, mask, mean, log, grad, grad_elements)
    grad_queries = backward(*arguments, accumulate=True, offsets=offsets)
    return [mean, grad_queries, grad_elements - 1]


def assert_equal(results, expected):
    for result, right in zip(results, expected, strict=True):
        assert_close(result, right, rtol=1e-4, atol=1e-5 * (1 + float(right.abs().max())))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("sets", "count", "num_queries", "features"), [(1, 300, 3, 16), (3, 70, 17, 80), (5, 1, 1, 32), (2, 129, 40, 128)]
)
@pytest.mark.parametrize("presence", ["all", "mask", "weights"])
@pytest.mark.usefixtures("enabled")
def test_both_passes_are_the_plain_equation(threads, sets, count, num_queries, features, presence):
    queries, elements, grad = draw(sets, count, num_queries, features)
    mask = None if presence == "all" else torch.arange(sets * count).view(sets, count) % 3 > 0
    mask = mask * 1.7 if presence == "weights" else mask
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert_equal(both_passes(queries, elements, mask, grad), plain(queries, elements, mask, grad))
    torch.set_num_threads(before)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("enabled")
def test_packed_sets_are_read_as_they_are(weighted):
    sizes = [0, 130, 1, 0, 64, 65]
    queries, elements, grad = draw(len(sizes), sum(sizes), 3, 16)
    offsets, elements = torch.tensor([0, *sizes]).cumsum(0), elements[0]
    weights = (torch.arange(len(elements)) % 4).float() if weighted else None
    batch = SetBatch(elements, offsets, weights)
    padded, mask = batch.to_padded()
    expected = plain(queries, padded, mask if weights is None else batch.padded_weights(), grad)
    expected[2] = expected[2][mask]
    assert_equal(both_passes(queries, elements, weights, grad, offsets), expected)


def test_strides_are_no_matter():
    queries, elements, grad = draw(3, 20, 2, 16)
    weights = torch.arange(60).view(3, 20) % 3.0
    chunk, part = elements[:, 5:6], weights[:, 5:6]
    assert_equal(both_passes(queries, chunk, part, grad), plain(queries, chunk, part, grad))
    strided = elements.transpose(0, 1).contiguous().transpose(0, 1)
    assert_equal(both_passes(queries, strided, weights, grad), plain(queries, elements, weights, grad))


def test_a_nan_is_not_hidden_and_large_scores_are_no_matter():
    queries, elements, grad = draw(2, 100, 2, 16)
    results = both_passes(1e4 * queries, elements, None, grad)
    assert all(result.isfinite().all() for result in results)
    elements[0, 70, 3] = torch.nan
    mean, _ = forward(queries, elements, None)
    assert mean[0].isnan().all()
    assert mean[1].isfinite().all()


@pytest.mark.usefixtures("enabled")
def test_a_pool_gives_the_same_results_and_gradients(monkeypatch):
    torch.manual_seed(0)
    pool, results = PicasoPool(16, num_templates=2, num_heads=2), []
    batch = SetBatch.from_list([torch.randn(size, 16) for size in (50, 0, 7)])
    for kernel in (True, False):
        if not kernel:
            monkeypatch.delitem(kernels.DEVICE_KERNELS, "cpu")
        leaf = batch.elements.clone().requires_grad_()
        pooled = pool(batch.with_elements(leaf))
        results.append([pooled.detach(), *torch.autograd.grad(pooled.square().sum(), [leaf, *pool.parameters()])])
    assert_equal(*results)


def test_threads_share_the_rows_of_a_large_set_and_small_problems_use_one(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    jobs, threads = plan_jobs(torch.empty(1, 100_000, 64), None, 16)
    assert threads == 4
    assert jobs.tolist() == [[0, start, start + 25_000] for start in range(0, 100_000, 25_000)]
    assert plan_jobs(torch.empty(8, 8, 64), None, 8)[1] == 1


@pytest.mark.parametrize(
    "elements",
    [
        torch.zeros(1, 2, 15), torch.zeros(1, 2, 16).double(), torch.zeros(1, 2, 0),
        torch.zeros(1, 2, 16).as_subclass(OtherTensor), torch.zeros(1, 16, 16).mT,
    ],
    ids=["width", "dtype", "no features", "subclass", "strides"],
)  # fmt: skip
def test_other_widths_dtypes_and_layouts_are_left_to_torch(elements):
    assert not serves(elements)


def test_an_environment_variable_enables_the_kernel():
    code = "from picaset.operators.attention import DEVICE_KERNELS; assert DEVICE_KERNELS['cpu'].large_only"
    environment = {**os.environ, "PICASET_NATIVE": "1"}
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stderr


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Compile again, in an empty folder, and as if no set had been large."""
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path))
    monkeypatch.delenv("PICASET_NATIVE", raising=False)
    monkeypatch.setattr(kernels, "DEVICE_KERNELS", {})
    clear()
    yield
    clear()


def clear():
    native_attention.load.cache_clear()
    native_attention.enable_if_possible.cache_clear()


@pytest.fixture
def fast_here(monkeypatch):
    """Act as on a processor on which the kernel was measured to be faster."""
    monkeypatch.setattr(native_attention, "is_fast_here", lambda: True)


def pool_a_large_set() -> list[torch.Tensor]:
    """Return the result and gradients of a pool on a set that is large enough for the kernel."""
    torch.manual_seed(0)
    pool = PicasoPool(16, num_templates=2, num_heads=2)
    elements = torch.randn(1, kernels.NATIVE_NUMBERS // 16, 16, requires_grad=True)
    output = pool(elements)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), [elements, *pool.parameters()])]


def assert_off():
    """Assert that a large set is pooled by torch's kernels."""
    results = pool_a_large_set()
    assert "cpu" not in kernels.DEVICE_KERNELS
    assert all(result.isfinite().all() for result in results)


@pytest.mark.usefixtures("fresh", "fast_here")
def test_a_large_set_is_pooled_by_the_kernel_without_asking(monkeypatch):
    results = pool_a_large_set()
    assert kernels.DEVICE_KERNELS["cpu"].forward is forward
    monkeypatch.setenv("PICASET_NATIVE", "0")
    monkeypatch.setattr(kernels, "DEVICE_KERNELS", {})
    native_attention.enable_if_possible.cache_clear()
    expected = pool_a_large_set()
    assert not kernels.DEVICE_KERNELS
    assert_equal(results, expected)


@pytest.mark.usefixtures("fresh", "fast_here")
def test_the_kernel_is_compiled_whatever_mode_is_active():
    with torch.inference_mode():
        elements = torch.randn(1, kernels.NATIVE_NUMBERS // 16, 16)
        PicasoPool(16, num_templates=2, num_heads=2)(elements)
    assert "cpu" in kernels.DEVICE_KERNELS


@pytest.mark.usefixtures("fresh")
def test_other_processors_keep_the_kernels_of_torch(monkeypatch):
    monkeypatch.setattr(native_attention, "read_processor", lambda: "flags : fpu avx2")
    assert_off()


@pytest.mark.usefixtures("fresh", "fast_here")
def test_without_a_compiler_large_sets_keep_the_kernels_of_torch(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert_off()


@pytest.mark.usefixtures("fresh", "fast_here")
def test_where_no_file_can_be_written_large_sets_keep_the_kernels_of_torch(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path / "file" / "folder"))
    assert_off()


@pytest.mark.usefixtures("fresh", "fast_here")
@pytest.mark.parametrize("writable", ["folder", "library"])
def test_a_library_that_others_could_have_written_is_not_loaded(tmp_path, writable):
    native_attention.enable()
    kernels.DEVICE_KERNELS.clear()
    clear()
    (library,) = tmp_path.glob("*.so")
    (tmp_path if writable == "folder" else library).chmod(0o777)
    with pytest.raises(RuntimeError, match=r"that only this user may write to; got .* with the mode .rwxrwxrwx"):
        native_attention.enable()
    assert_off()


def test_small_problems_many_queries_and_small_sets_are_left_to_torch():
    large = kernels.NATIVE_NUMBERS
    assert kernels.pays_natively(1, 16, large)
    assert not kernels.pays_natively(1, 16, large - 1)
    assert not kernels.pays_natively(1, 64, large)
    assert not kernels.pays_natively(10_000, 16, large)


def test_a_small_pool_neither_compiles_nor_loads_the_kernel():
    code = (
        "import sys, torch; from picaset import PicasoPool; "
        "PicasoPool(16, num_templates=2, num_heads=2)(torch.randn(2, 70_000, 16)).sum().backward(); "
        "assert 'picaset.operators.native_attention' not in sys.modules"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_processes_that_start_together_share_one_cache(tmp_path):
    code = "from picaset.operators.native_attention import enable; enable()"
    environment = {**os.environ, "PICASET_CACHE": str(tmp_path / "new")}
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert len(list((tmp_path / "new").iterdir())) == 1


@pytest.mark.usefixtures("fresh")
def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"needs a C compiler; found neither cc nor \$CC"):
        native_attention.enable()


@pytest.mark.usefixtures("fresh")
def test_a_kernel_that_does_not_compile_shows_why(monkeypatch, tmp_path):
    (tmp_path / "broken.c").write_text("int run(")
    monkeypatch.setattr(native_attention, "SOURCE", tmp_path / "broken.c")
    with pytest.raises(RuntimeError, match=r"must compile; .*failed:\n.*broken.c"):
        native_attention.enable()
    assert "cpu" not in kernels.DEVICE_KERNELS


@pytest.mark.usefixtures("fresh")
def test_a_kernel_that_is_wrong_is_refused(monkeypatch, tmp_path):
    (tmp_path / "wrong.c").write_text(SOURCE.read_text().replace("0.693359375f", "0.7f"))
    monkeypatch.setattr(native_attention, "SOURCE", tmp_path / "wrong.c")
    with pytest.raises(RuntimeError, match="must equal the plain equation; it differs by"):
        native_attention.enable()
    assert "cpu" not in kernels.DEVICE_KERNELS


def test_a_kernel_that_runs_out_of_memory_raises_an_error(monkeypatch):
    class Library:
        def run(self, problem):
            return 1

    monkeypatch.setattr(native_attention, "load", Library)
    with pytest.raises(MemoryError, match="could not allocate memory"):
        forward(*draw(1, 2, 1, 16)[:2], None)
