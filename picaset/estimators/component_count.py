"""How many components a mixture should have: what each further one costs, and when it counts as found."""


def fewest_held(dim: int) -> int:
    """Points that a component must hold to count as found; any few points that happen to be close are likely ones."""
    return dim + 2


def criterion(log_likelihood: float, num_parameters: int, price: float) -> float:
    """Minus twice the log-likelihood of all points, and a price for every parameter."""
    return float(price * num_parameters - 2 * log_likelihood)
