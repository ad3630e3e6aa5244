"""The equations of all operators, literally, in float64 NumPy.

Every operator of the library is defined by its function here and tested to equal it. A function takes the weights of
the operator, under the names of its state dict, and one set ``X`` of shape (n, D).
"""

from itertools import permutations
from math import log, pi, sqrt

import numpy as np


def softmax(scores, axis):
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


def layer_norm(weights, name, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def within(weights, name):
    """Return the weights of a submodule, under its own names."""
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


def attention(Q, K, V, divisor):
    """Eq. 1: softmax(Q K^T / sqrt(d_k)) V; zero for an empty set."""
    if len(K) == 0:
        return np.zeros((len(Q), V.shape[1]))
    return softmax(Q @ K.T / divisor, axis=1) @ V


def heads(weights, Y, X, num_heads, divisor):
    """Eq. 2 before W^O: the concatenated heads."""
    Q, K, V = linear(weights, "query_map", Y), linear(weights, "key_map", X), linear(weights, "value_map", X)
    width = Q.shape[1] // num_heads
    parts = [slice(h * width, (h + 1) * width) for h in range(num_heads)]
    return np.concatenate([attention(Q[:, part], K[:, part], V[:, part], divisor) for part in parts], axis=1)


def set_norm(weights, name, X):
    """Zhang et al. 2022: standardize over elements and features."""
    if len(X) == 0:
        return X
    normed = (X - X.mean()) / np.sqrt(((X - X.mean()) ** 2).mean() + 1e-5)
    return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def mab(weights, Y, X, *, num_heads, form="paper", norm=False, residual=True, feed_forward=True):
    """Eq. 3, and the form of the authors' program; clean residuals as in Set Transformer++."""

    def normalized(name, values):
        return {"set": set_norm, False: lambda weights, name, x: x}.get(norm, layer_norm)(weights, name, values)

    dim = weights["query_map.weight"].shape[0]
    divisor = sqrt(dim / num_heads) if form == "paper" else sqrt(dim)
    clean = residual == "clean"
    inputs = (normalized("query_norm", Y), normalized("element_norm", X)) if clean else (Y, X)
    H = heads(weights, *inputs, num_heads, divisor)
    if form == "paper":
        H = linear(weights, "output_map", H)
        H = relu(linear(weights, "attended_layer", H)) if feed_forward else H
    if clean:
        H = H + (linear(weights, "residual_map", Y) if "residual_map.weight" in weights else Y)
        return H + relu(linear(weights, "last_layer", normalized("attended_norm", H))) if feed_forward else H
    if residual:
        H = H + linear(weights, "residual_map" if form == "paper" else "query_map", Y)
    H = normalized("attended_norm", H)
    if not feed_forward:
        return H
    rff = relu(linear(weights, "last_layer", H))
    return normalized("last_norm", H + rff if residual else rff)


def self_attention(weights, X, **block):
    return mab(within(weights, "block"), X, X, **block)


def induced_self_attention(weights, X, **block):
    """Eq. 4."""
    Z = mab(within(weights, "gather"), weights["inducing"], X, **block)
    return mab(within(weights, "spread"), X, Z, **block)


def picaso(weights, X, *, num_steps, share=True, **block):
    """Eq. 5."""
    T = weights["templates"]
    for step in range(num_steps):
        T = mab(within(weights, f"blocks.{0 if share else step}"), T, X, **block)
    return T


def mixing_picaso(weights, X, *, num_steps, **block):
    """Eq. 5, with self-attention among the templates after every step."""
    T = weights["templates"]
    for _ in range(num_steps):
        T = self_attention(within(weights, "mixing"), mab(within(weights, "blocks.0"), T, X, **block), **block)
    return T


def generalized_picaso(weights, X, *, num_steps, tied=True, **block):
    """Eq. 6; returns T_L and X_L."""
    reading = within(weights, "reading")
    rewriting = reading if tied else within(weights, "rewriting")
    T = weights["templates"]
    for _ in range(num_steps):
        T = mab(reading, T, X, **block)
        X = mab(rewriting, X, T, **block)
    return T, X


def mean_pool(X):
    return X.mean(axis=0, keepdims=True) if len(X) else np.zeros((1, X.shape[1]))


def sum_pool(X):
    return X.sum(axis=0, keepdims=True)


def max_pool(X):
    return X.max(axis=0, keepdims=True) if len(X) else np.zeros((1, X.shape[1]))


def gated_attention(weights, X):
    """Ilse et al. 2018, Eq. 9."""
    if len(X) == 0:
        return np.zeros((len(weights["weigh.bias"]), X.shape[1]))
    hidden = np.tanh(linear(weights, "content", X)) * sigmoid(linear(weights, "gate", X))
    return softmax(linear(weights, "weigh", hidden), axis=0).T @ X


def featurewise_attention(weights, X):
    """Yang et al. 2020, Eqs. 3 to 5."""
    if len(X) == 0:
        return np.zeros((1, X.shape[1]))
    return (softmax(linear(weights, "weigh", X), axis=0) * X).sum(axis=0, keepdims=True)


def janossy(weights, X, *, order):
    """Murphy et al. 2018, Eq. 3: the mean of f over the first k elements of every ordering."""
    k = min(order, len(X))
    rows = []
    for chosen in permutations(range(len(X)), k):
        tuple_ = [X[i] for i in chosen] + [np.zeros(X.shape[1])] * (order - k)
        hidden = sum(linear(weights, f"places.{place}", x) for place, x in enumerate(tuple_))
        rows.append(linear(weights, "last", relu(hidden)))
    return np.mean(rows, axis=0, keepdims=True)


def sort_pool(weights, X):
    """Zhang et al. 2020: each feature sorted, and weighted by a piecewise linear function of the rank."""
    knots = weights["knots"]
    at = np.linspace(0, 1, len(knots))
    in_order = -np.sort(-X, axis=0)
    result = np.zeros((1, X.shape[1]))
    for i in range(len(X)):
        rank = i / max(len(X) - 1, 1)
        for d in range(X.shape[1]):
            result[0, d] += np.interp(rank, at, knots[:, d]) * in_order[i, d]
    return result


def slot_attention(weights, X, *, slots, num_steps, epsilon=1e-8):
    """Locatello et al. 2020, Algorithm 1."""
    X = layer_norm(weights, "element_norm", X)
    keys, values = linear(weights, "key_map", X), linear(weights, "value_map", X)
    for _ in range(num_steps):
        queries = linear(weights, "query_map", layer_norm(weights, "slot_norm", slots))
        updates = np.zeros_like(slots)
        if len(X):
            shares = softmax(queries @ keys.T / sqrt(keys.shape[1]), axis=0) + epsilon
            updates = (shares / shares.sum(axis=1, keepdims=True)) @ values
        slots = gru(within(weights, "recurrence"), updates, slots)
        hidden = relu(linear(weights, "feed_forward.0", layer_norm(weights, "update_norm", slots)))
        slots = slots + linear(weights, "feed_forward.2", hidden)
    return slots


def gru(weights, x, h):
    """Cho et al. 2014, with torch's order of the gates."""
    inputs = x @ weights["weight_ih"].T + weights["bias_ih"]
    hidden = h @ weights["weight_hh"].T + weights["bias_hh"]
    reset_x, update_x, new_x = np.split(inputs, 3, axis=1)
    reset_h, update_h, new_h = np.split(hidden, 3, axis=1)
    update = sigmoid(update_x + update_h)
    new = np.tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
    return (1 - update) * new + update * h


def soft_kmeans(weights, X, *, num_steps, compete, temperature):
    """Proposition 2: in the paper's form (Eq. 8), and as K-means."""
    T = weights["templates"]
    for _ in range(num_steps):
        if not compete:
            T = attention(T, X, X, sqrt(X.shape[1]) * temperature)
        elif len(X):
            distances = ((X[:, None] - T[None]) ** 2).sum(axis=2)
            shares = softmax(-distances / temperature, axis=1)
            T = (shares.T @ X) / shares.sum(axis=0)[:, None]
    return T


def mixture_log_density(means, variances, log_weights, X):
    variances = np.broadcast_to(variances, means.shape)
    rows = [
        log_weights[k]
        - 0.5 * (((X - means[k]) ** 2) / variances[k]).sum(axis=1)
        - 0.5 * np.log(variances[k]).sum()
        - 0.5 * X.shape[1] * log(2 * pi)
        for k in range(len(means))
    ]
    return np.stack(rows)


def em_step(means, variances, log_weights, X, min_variance=1e-6):
    """One step of EM for a Gaussian mixture; spherical if the variances have one column."""
    if len(X) == 0:
        return means, variances, log_weights
    shares = softmax(mixture_log_density(means, variances, log_weights, X), axis=0)
    held = shares.sum(axis=1)
    new_means = (shares @ X) / held[:, None]
    squares = np.stack([shares[k] @ (X - new_means[k]) ** 2 / held[k] for k in range(len(means))])
    if variances.shape[1] == 1:
        squares = squares.mean(axis=1, keepdims=True)
    return new_means, np.maximum(squares, min_variance), np.log(held / len(X))


def canonical(X):
    """Return the mean, the root mean squared deviation, and the standardized set."""
    if len(X) == 0:
        return np.zeros(X.shape[1]), 1.0, X
    shift = X.mean(axis=0)
    scale = sqrt(((X - shift) ** 2).mean())
    scale = scale if (X[0] != X).any() else 1.0
    return shift, scale, (X - shift) / scale


def layers(weights, count, X):
    """``count`` linear layers with ReLU between them, numbered as in an nn.Sequential."""
    for index in range(count):
        X = linear(weights, f"{2 * index}", X)
        X = relu(X) if index < count - 1 else X
    return X


def one_layer(weights, X, **_):
    return relu(linear(weights, "network.0", X))


def deep_sets(weights, X, *, pool, num_outputs):
    encoded = layers(within(weights, "encoders.0.network"), 4, X)
    return layers(within(weights, "decoder.1"), 4, pool(encoded)).reshape(num_outputs, -1)


def attention_network(weights, X, *, encode, num_encoders, num_steps, num_decoders, **block):
    """AE, AE, PB, SA, linear; with one step of the cascade, Set Transformer."""
    for index in range(num_encoders):
        X = encode(within(weights, f"encoders.{index}"), X, **block)
    T = picaso(within(weights, "pool"), X, num_steps=num_steps, **block)
    for index in range(num_decoders):
        T = self_attention(within(weights, f"decoder.{index}"), T, **block)
    return linear(weights, f"decoder.{num_decoders}", T)


def em_routing(V, a, children, *, beta_use, beta_activation, num_iterations, inverse_temperature):
    """Hinton 2018, Algorithm 1, child by child and parent by parent; V (O, W, J, H), a (N,), children (O, W)."""
    O, W, J, H = V.shape
    parents = {
        i: [(o, w, j) for o in range(O) for w in range(W) if children[o, w] == i for j in range(J)]
        for i in range(len(a))
    }
    R = np.zeros((O, W, J))
    for places in parents.values():
        for place in places:
            R[place] = 1 / len(places)
    for iteration in range(num_iterations):
        mean, variance, act = np.zeros((O, J, H)), np.zeros((O, J, H)), np.zeros((O, J))
        for o in range(O):
            for j in range(J):
                r = np.array([R[o, w, j] * a[children[o, w]] for w in range(W)])
                share = r / (r.sum() + 1e-12)
                mean[o, j] = share @ V[o, :, j]
                variance[o, j] = share @ (V[o, :, j] - mean[o, j]) ** 2 + 1e-4
                cost = ((beta_use[j] + np.log(np.sqrt(variance[o, j]))) * r.sum()).sum()
                temperature = inverse_temperature * (1 - 0.95 ** (iteration + 1))
                act[o, j] = sigmoid(temperature * (beta_activation[j] - cost))
        for places in parents.values():
            p = [
                act[o, j]
                * np.exp(-((V[o, w, j] - mean[o, j]) ** 2 / (2 * variance[o, j])).sum())
                / np.sqrt((2 * pi * variance[o, j]).prod())
                for o, w, j in places
            ]
            for place, density in zip(places, p, strict=True):
                R[place] = density / sum(p)
    return mean, act


def mixture_em_step(points, point_weights, means, covariances, weights, covariance_type, *, reg=0.0, background=None):
    """One EM step of a Gaussian mixture with matrices (K, D, D), for points that may have NaN; literal and slow.

    Missing coordinates count with their conditional mean and covariance. ``background`` holds the widths of a box,
    whose uniform density is the last component. Returns means, matrices, weights and the average log-likelihood before.
    """
    count, dim = means.shape
    joint = np.zeros((len(points), len(weights)))
    for n, point in enumerate(points):
        seen = ~np.isnan(point)
        for k in range(count):
            matrix, difference = covariances[k][np.ix_(seen, seen)], point[seen] - means[k][seen]
            distance = difference @ np.linalg.solve(matrix, difference)
            volume = np.linalg.det(2 * np.pi * matrix)
            joint[n, k] = weights[k] * np.exp(-0.5 * distance) / np.sqrt(volume)
        if background is not None:
            joint[n, count] = weights[count] / np.prod(background[seen])
    total = joint.sum(axis=1)
    responsibilities = joint / total[:, None] * point_weights[:, None]
    sizes, new_means, scatters = responsibilities.sum(axis=0), np.zeros_like(means), np.zeros_like(covariances)
    for k in range(count):
        expected, spreads = [], []
        for point in points:
            seen = ~np.isnan(point)
            cross = covariances[k][np.ix_(~seen, seen)]
            inverse = np.linalg.inv(covariances[k][np.ix_(seen, seen)])
            filled, spread = point.copy(), np.zeros((dim, dim))
            filled[~seen] = means[k][~seen] + cross @ inverse @ (point[seen] - means[k][seen])
            spread[np.ix_(~seen, ~seen)] = covariances[k][np.ix_(~seen, ~seen)] - cross @ inverse @ cross.T
            expected.append(filled)
            spreads.append(spread)
        r = responsibilities[:, k]
        new_means[k] = (r[:, None] * expected).sum(axis=0) / sizes[k]
        for share, filled, spread in zip(r, expected, spreads, strict=True):
            scatters[k] += share * (np.outer(filled - new_means[k], filled - new_means[k]) + spread)
    identity = np.eye(dim)
    each = scatters / sizes[:count, None, None]
    matrices = {
        "full": each,
        "tied": np.broadcast_to(scatters.sum(axis=0) / sizes[:count].sum(), each.shape),
        "diag": each * identity,
        "spherical": np.trace(each, axis1=1, axis2=2)[:, None, None] / dim * identity,
    }[covariance_type]
    likelihood = (point_weights * np.log(total)).sum() / point_weights.sum()
    return new_means, matrices + reg * identity, sizes / sizes.sum(), likelihood
