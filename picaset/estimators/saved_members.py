"""Fitted scikit-learn estimators as JSON and arrays, without pickle.

Only the classes in ``CLASSES`` are written and read, so loading runs no code from the file. Arrays go to a dictionary
that safetensors writes; everything else is JSON. The state belongs to a version of scikit-learn, as a pickle does; if
another version cannot use it, loading says so.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.discriminant import ShrunkDiscriminant
from picaset.estimators.set_features import SetMeanEmbedding, SetStatistics, SetVocabulary
from picaset.estimators.validation import from_scikit_learn
from picaset.files import describe_value, read_value

Arrays = dict[str, NDArray[Any]]
OWN_CLASSES = {own.__name__: own for own in (SetStatistics, SetMeanEmbedding, SetVocabulary, ShrunkDiscriminant)}
CLASSES = {
    "DecisionTreeClassifier": "sklearn.tree",
    "DecisionTreeRegressor": "sklearn.tree",
    "ExtraTreeClassifier": "sklearn.tree",
    "ExtraTreeRegressor": "sklearn.tree",
    "ExtraTreesClassifier": "sklearn.ensemble",
    "ExtraTreesRegressor": "sklearn.ensemble",
    "LabelBinarizer": "sklearn.preprocessing",
    "MultiOutputRegressor": "sklearn.multioutput",
    "Pipeline": "sklearn.pipeline",
    "RandomForestClassifier": "sklearn.ensemble",
    "RandomForestRegressor": "sklearn.ensemble",
    "RidgeClassifierCV": "sklearn.linear_model",
    "RidgeCV": "sklearn.linear_model",
    "StandardScaler": "sklearn.preprocessing",
    "SVC": "sklearn.svm",
    "SVR": "sklearn.svm",
}
"""Modules of the classes of scikit-learn that are saved."""
MAX_CLASSES = 10_000
"""Largest number of classes of a decision tree that is loaded."""


@cache
def class_named(name: str) -> Any:
    if name in OWN_CLASSES:
        return OWN_CLASSES[name]
    if name not in CLASSES:
        raise ValueError(f"{name!r} is not a class of a saved member")
    return from_scikit_learn(CLASSES[name], name)


def encode(value: Any, arrays: Arrays) -> Any:
    """Return a value as JSON; arrays are moved to ``arrays`` and replaced by their keys."""
    name = type(value).__name__
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return cast(Any, value).item()
    if isinstance(value, np.ndarray):
        array = cast(NDArray[Any], value)
        if array.dtype.kind not in "iufb":
            return {"list": array.tolist(), "dtype": array.dtype.str}
        key = f"a{len(arrays)}"
        arrays[key] = np.ascontiguousarray(array).reshape(array.shape)
        return {"array": key}
    if isinstance(value, list | tuple):
        items = [encode(item, arrays) for item in cast(list[Any], value)]
        return {"list" if isinstance(value, list) else "tuple": items}
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return {"dict": [[encode(key, arrays), encode(item, arrays)] for key, item in pairs]}
    if name == "RandomState":  # only fit uses it
        return None
    if name == "Tree":
        nodes = value.__getstate__()["nodes"]
        sizes = {"n_features": value.n_features, "n_outputs": value.n_outputs, "max_depth": value.max_depth}
        fields = {field: encode(np.ascontiguousarray(nodes[field]), arrays) for field in nodes.dtype.names}
        counts = encode(value.n_classes, arrays)
        return {"tree": sizes, "n_classes": counts, "nodes": fields, "values": encode(value.value, arrays)}
    if name in OWN_CLASSES or name in CLASSES:
        parameters: dict[str, Any] = value.get_params(deep=False)
        attributes = cast(dict[str, Any], vars(value))
        state = {key: item for key, item in attributes.items() if key not in parameters}
        return {
            "class": name,
            "parameters": {key: encode(item, arrays) for key, item in parameters.items()},
            "state": {key: encode(item, arrays) for key, item in state.items()},
        }
    raise ValueError(f"a {name} cannot be saved")


def decode(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that ``encode`` was given."""
    if not isinstance(value, dict):
        return value
    described = cast(dict[str, Any], value)
    if "array" in described:
        array = arrays[described["array"]]
        if not np.isfinite(array).all():
            raise ValueError(f"{describe_value(described['array'])} holds NaN or infinity")
        return array
    if "dtype" in described:
        return np.array(read_value(described["list"], list[str], where="members", name="list"), dtype=object)
    if "list" in described:
        return [decode(item, arrays) for item in described["list"]]
    if "tuple" in described:
        return tuple(decode(item, arrays) for item in described["tuple"])
    if "dict" in described:
        return {decode(key, arrays): decode(item, arrays) for key, item in described["dict"]}
    if "tree" in described:
        return decode_tree(described, arrays)
    estimator = class_named(described["class"])(
        **{key: decode(item, arrays) for key, item in described["parameters"].items()}
    )
    if described["class"] in CLASSES:
        estimator._validate_params()
        if getattr(estimator, "n_jobs", None) is not None or getattr(estimator, "verbose", False):
            raise ValueError("n_jobs and verbose of a member must be those of its class")
    for key, item in described["state"].items():
        setattr(estimator, key, decode(item, arrays))
    if described["class"] in ("SVC", "SVR") and "support_vectors_" in described["state"]:  # or predict refuses it
        check_support_vectors(estimator)
    check_trees(estimator)
    return estimator


def decode_tree(described: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Build a decision tree after checking that every branch leads on to a later node of the tree."""
    tree_class = from_scikit_learn("sklearn.tree._tree", "Tree")
    sizes = read_value(described["tree"], dict[str, int], where="members", name="tree")
    classes = np.asarray(decode(described["n_classes"], arrays), dtype=np.intp)
    if classes.shape != (sizes["n_outputs"],) or not 0 < classes.min() <= classes.max() <= MAX_CLASSES:
        raise ValueError(
            f"a decision tree must have 1 to {MAX_CLASSES} classes for each of {sizes['n_outputs']} outputs; got "
            f"{describe_value(classes.tolist())}."
        )
    tree = tree_class(sizes["n_features"], classes, sizes["n_outputs"])
    dtype = tree.__getstate__()["nodes"].dtype
    fields = {name: decode(field, arrays) for name, field in described["nodes"].items()}
    nodes: Any = np.zeros(len(fields["left_child"]), dtype=dtype)
    for name in dtype.names:
        nodes[name] = fields[name]
    leaf, index = nodes["left_child"] == -1, np.arange(len(nodes))
    for child in (nodes["left_child"], nodes["right_child"]):
        if not len(nodes) or not (leaf | ((child > index) & (child < len(nodes)))).all():
            raise ValueError("a decision tree has a branch to a node that does not exist")
    if not (leaf | ((nodes["feature"] >= 0) & (nodes["feature"] < sizes["n_features"]))).all():
        raise ValueError("a decision tree uses a feature that does not exist")
    values = decode(described["values"], arrays)
    tree.__setstate__({"max_depth": sizes["max_depth"], "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def check_trees(estimator: Any) -> None:
    """Raise unless the trees of an estimator have its features: their code does not check its inputs."""
    trees = [estimator.tree_.n_features] if hasattr(estimator, "tree_") else []
    trees += [tree.n_features_in_ for tree in getattr(estimator, "estimators_", ()) if hasattr(tree, "tree_")]
    if any(number != estimator.n_features_in_ for number in trees):
        raise ValueError("a decision tree was fitted to a different number of features than its member")


def check_support_vectors(machine: Any) -> None:
    """Raise unless the arrays of a support vector machine fit together: the code of libsvm does not check them."""
    vectors, features = machine.support_vectors_.shape
    counts, support = machine._n_support, machine.support_
    number = len(counts) if type(machine).__name__ == "SVC" else 2
    shapes = {
        "support_": (support.shape, (vectors,)),
        "n_support_": (int(machine.n_support_.sum()), vectors),
        "_dual_coef_": (machine._dual_coef_.shape, (number - 1, vectors)),
        "_intercept_": (machine._intercept_.shape, (number * (number - 1) // 2,)),
        "n_features_in_": (machine.n_features_in_, features),
        "kernel": (machine.kernel, "rbf"),
        "_sparse": (machine._sparse, False),
        "probability": (machine._probA.size + machine._probB.size, 0),
    }
    for name, (actual, expected) in shapes.items():
        if actual != expected:
            raise ValueError(f"{name} of a support vector machine must be {expected}; got {describe_value(actual)}")
    if counts.ndim != 1 or number < 2 or (counts < 0).any() or (support < 0).any():
        raise ValueError("the support vectors of a member do not fit its classes")
