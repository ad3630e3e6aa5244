"""Sets found by descent: what is found, and whether its gradients are those of what is found."""

import pytest
import torch
from torch.testing import assert_close

from picaset.lab.networks.set_descent import SetDescent, SpectralBound


def small(**options) -> SetDescent:
    """A smooth, small problem that a thousand steps solve to the last digit."""
    torch.manual_seed(0)
    descent = SetDescent(3, 2, num_elements=4, dim_hidden=5, damping=0.5, **options).double()
    descent.elementwise[1] = torch.nn.Tanh()
    with torch.no_grad():
        descent.pool.knots.mul_(0.3)
    return descent


VECTORS = torch.randn(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
WANTED = torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def gradients(descent: SetDescent) -> tuple[torch.Tensor, list[torch.Tensor]]:
    vectors = VECTORS.clone().requires_grad_()
    found = descent(vectors)
    learned = [vectors, *descent.parameters()]
    return found.detach(), list(torch.autograd.grad((found * WANTED).sum(), learned, allow_unused=True))


def objective(descent: SetDescent, elements: torch.Tensor, vectors: torch.Tensor = VECTORS) -> torch.Tensor:
    way = descent.encode(elements) - (descent.encode(descent.start[None]) if descent.bounded else 0)
    missing = (way - vectors).square().sum(dim=1) / 2
    return missing + descent.damping * (elements - descent.start).square().sum(dim=(1, 2)) / 2


def test_the_slope_is_the_gradient_of_the_objective():
    descent = small()
    elements = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(objective(descent, elements).sum(), elements)
    assert_close(descent.gradient(elements, VECTORS, descent.start.expand(2, -1, -1)), expected)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_more_steps_lower_the_objective_until_nothing_changes(momentum):
    levels = []
    for steps in (1, 5, 50, 600, 700):
        descent = small(num_steps=steps, step_size=0.1, momentum=momentum)
        levels.append(float(objective(descent, descent(VECTORS)).detach().sum()))
    assert levels[0] > levels[1] > levels[2] >= levels[3] - 1e-9
    assert levels[3] == pytest.approx(levels[4], abs=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_gradients_are_clipped_and_small_ones_are_unchanged(momentum):
    options = dict(num_steps=5, step_size=0.5, momentum=momentum)
    assert_close(small(clip=1e3, **options)(VECTORS), small(**options)(VECTORS))
    descent = small(clip=0.01, **options)
    elements = start = descent.start.expand(2, -1, -1)
    pace = torch.zeros_like(start)
    for _ in range(5):  # as it is written, for each set by itself
        slopes = torch.autograd.grad(objective(descent, elements).sum(), elements, create_graph=True)[0]
        pace = momentum * pace - 0.5 * torch.stack(
            [one * min(1.0, 0.01 / one.detach().norm().item()) for one in slopes]
        )
        elements = elements + pace
    assert_close(descent(VECTORS), elements)
    assert not torch.allclose(elements, small(**options)(VECTORS), atol=1e-3)  # else nothing was cut


def steep(**options) -> SetDescent:
    """Return a descent with weights thirty times as large, as training may lead to."""
    torch.manual_seed(0)
    descent = SetDescent(6, 4, num_elements=5, dim_hidden=7, **options).double()
    with torch.no_grad():
        for parameter in (*descent.elementwise.parameters(), descent.pool.knots):
            parameter.mul_(30)
    return descent


def test_a_bounded_encoding_moves_little_further_than_the_elements():
    elements = torch.randn(1, 5, 4, dtype=torch.float64)

    def steepness(descent: SetDescent) -> float:
        jacobian = torch.autograd.functional.jacobian(descent.encode, elements).reshape(6, 20)
        return float(torch.linalg.matrix_norm(jacobian, 2))

    assert steepness(steep(bounded=True)) < 1.13  # the steepest place of a GELU
    assert steepness(steep()) > 100


@pytest.mark.parametrize("bounded", [False, True])
def test_a_bounded_descent_does_not_fly_off_whatever_was_learned(bounded):
    levels = list[torch.Tensor]()
    for steps in (1, 20, 200, 400):
        descent = steep(bounded=bounded, num_steps=steps, step_size=0.2, momentum=0.8)
        levels.append(objective(descent, descent(torch.ones(2, 6).double()).detach(), torch.ones(2, 6)).detach())
    falls = levels[0] > levels[1]
    stays = (levels[2] - levels[3]).abs() < 0.01 * levels[2]
    assert (falls & stays).tolist() == [bounded] * 2


@pytest.mark.parametrize("bounded", [False, True])
def test_what_is_added_to_every_encoding_puts_no_bounded_set_out_of_reach(bounded):
    descent = small(num_steps=20, step_size=0.2, bounded=bounded)
    before, encode = descent(VECTORS), descent.encode
    descent.encode = lambda elements: encode(elements) + 100
    assert torch.allclose(descent(VECTORS), before) == bounded


@pytest.mark.parametrize("implicit", [False, True])
def test_a_bounded_descent_takes_half_precision(implicit):
    torch.manual_seed(0)
    descent, vectors = (
        SetDescent(8, 4, num_elements=3, step_size=0.2, bounded=True, implicit=implicit),
        torch.randn(2, 8),
    )
    expected = descent(vectors)
    with torch.autocast("cpu", torch.bfloat16):
        found = descent(vectors)
    assert_close(found.float(), expected, atol=0.1, rtol=0.1)
    found.float().sum().backward()
    assert_close(descent.bfloat16()(vectors.bfloat16()).float(), expected, atol=0.1, rtol=0.1)


def test_a_map_is_divided_by_what_it_stretches_above_one():
    weight = torch.eye(7, 4)
    assert_close(SpectralBound()(0.5 * weight), 0.5 * weight)
    assert_close(SpectralBound()(5 * weight), weight)


@pytest.mark.parametrize("bounded", [False, True])
def test_implicit_gradients_are_those_through_all_steps(bounded):
    found, through_steps = gradients(small(num_steps=800, step_size=0.1, bounded=bounded))
    implicitly = small(num_steps=800, step_size=0.05, momentum=0.8, implicit=True, num_solves=30, bounded=bounded)
    again, implicit = gradients(implicitly)
    assert_close(again, found)
    assert len(implicit) == len(through_steps)
    for one, other in zip(implicit, through_steps, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_close(one, other, atol=1e-8, rtol=1e-6)


def test_without_solves_the_second_derivative_counts_as_one():
    # Where it is one in truth, with an encoder that gives nothing, both agree; elsewhere they do not.
    exact, published = (
        gradients(small(num_steps=400, step_size=0.1, implicit=True, num_solves=solves))[1] for solves in (30, 0)
    )
    assert not torch.allclose(exact[0], published[0], rtol=1e-2)
    silent = [small(num_steps=400, step_size=0.5, implicit=True, num_solves=solves) for solves in (30, 0)]
    for descent in silent:
        descent.damping = 1.0
        with torch.no_grad():
            descent.pool.knots.zero_()
    for one, other in zip(*(gradients(descent)[1] for descent in silent), strict=True):
        assert_close(one, other)


def bending(*curvatures: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The slope of a paraboloid with these curvatures, and where it is taken: a batch of one set."""
    found = torch.zeros(1, 1, len(curvatures), dtype=torch.float64, requires_grad=True)
    return found * torch.tensor(curvatures, dtype=torch.float64), found


@pytest.mark.parametrize(
    ("curvatures", "expected"),
    [
        ((2.0, 4.0), (0.5, 0.5)),
        ((-2.0, -4.0), (1.0, 2.0)),
        ((0.0, 0.0), (1.0, 2.0)),
        ((-1.0, 4.0), (1 / 3, 2 / 3)),  # upwards along the first way, by 15 for a square of 5, downwards along the next
    ],
)
def test_solving_stops_where_the_objective_bends_downwards(curvatures, expected):
    wanted = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    found = small(implicit=True, num_solves=5).solve_hessian(*bending(*curvatures), wanted)
    assert_close(found, torch.tensor([[expected]], dtype=torch.float64))
    assert not small(implicit=True, num_solves=5).solve_hessian(*bending(*curvatures), 0 * wanted).any()


def test_one_set_that_bends_downwards_changes_no_other():
    descent, wanted = small(implicit=True, num_solves=5), torch.ones(2, 1, 2, dtype=torch.float64)
    found = torch.zeros(2, 1, 2, dtype=torch.float64, requires_grad=True)
    slope = found * torch.tensor([[[-1.0, -2.0]], [[1.0, 2.0]]]).double()
    assert_close(descent.solve_hessian(slope, found, wanted), torch.tensor([[[1.0, 1.0]], [[1.0, 0.5]]]).double())


@pytest.mark.parametrize("implicit", [False, True])
def test_gradients_through_a_few_steps_point_downhill(implicit):
    descent = small(num_steps=10, step_size=0.2, implicit=implicit, momentum=0.5)
    optimizer = torch.optim.Adam(descent.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        loss = (descent(VECTORS) - WANTED).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("implicit", [False, True])
def test_the_elements_are_ordered_as_their_start_and_in_no_other_way(implicit):
    descent = small(num_steps=7, step_size=0.1, implicit=implicit)
    before = descent(VECTORS)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        descent.start.copy_(descent.start[order].clone())
    assert_close(descent(VECTORS), before[:, order])


@pytest.mark.parametrize("implicit", [False, True])
def test_without_gradients_the_same_set_is_found(implicit):
    descent = small(num_steps=7, step_size=0.1, implicit=implicit)
    with torch.no_grad():
        quiet = descent(VECTORS)
    assert not quiet.requires_grad
    assert_close(quiet, descent(VECTORS).detach())


@pytest.mark.as_installed
@pytest.mark.parametrize("options", [{"momentum": 1.0}, {"step_size": 0.0}, {"damping": -1.0}, {"num_solves": -1}])
def test_a_descent_that_cannot_end_is_refused(options):
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1, step_size above 0"):
        SetDescent(3, 2, num_elements=4, **options)


@pytest.mark.parametrize("implicit", [False, True])
def test_a_call_may_take_another_number_of_steps(implicit):
    few, many = (small(num_steps=steps, step_size=0.1, implicit=implicit) for steps in (3, 9))
    assert torch.equal(few(VECTORS, num_steps=9), many(VECTORS))
    assert not torch.allclose(few(VECTORS), many(VECTORS))


def test_solves_without_implicit_gradients_are_refused():
    with pytest.raises(ValueError, match="num_solves=5 needs implicit=True"):
        SetDescent(3, 2, num_elements=4, num_solves=5)
