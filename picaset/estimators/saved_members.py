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

from picaset.estimators.set_features import SetMeanEmbedding, SetStatistics, SetVocabulary
from picaset.estimators.validation import from_scikit_learn

Arrays = dict[str, NDArray[Any]]
OURS = {one.__name__: one for one in (SetStatistics, SetMeanEmbedding, SetVocabulary)}
CLASSES = {
    "DecisionTreeClassifier": "sklearn.tree",
    "DecisionTreeRegressor": "sklearn.tree",
    "ExtraTreeClassifier": "sklearn.tree",
    "ExtraTreeRegressor": "sklearn.tree",
    "ExtraTreesClassifier": "sklearn.ensemble",
    "ExtraTreesRegressor": "sklearn.ensemble",
    "MultiOutputRegressor": "sklearn.multioutput",
    "Pipeline": "sklearn.pipeline",
    "RandomForestClassifier": "sklearn.ensemble",
    "RandomForestRegressor": "sklearn.ensemble",
    "RidgeCV": "sklearn.linear_model",
    "StandardScaler": "sklearn.preprocessing",
    "SVC": "sklearn.svm",
    "SVR": "sklearn.svm",
}
"""Modules of the classes of scikit-learn that are saved."""


@cache
def class_named(name: str) -> Any:
    if name in OURS:
        return OURS[name]
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
    if name in OURS or name in CLASSES:
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
        return arrays[described["array"]]
    if "dtype" in described:
        return np.array(described["list"], dtype=np.dtype(described["dtype"]))
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
    for key, item in described["state"].items():
        setattr(estimator, key, decode(item, arrays))
    if hasattr(estimator, "support_vectors_"):
        check_support_vectors(estimator)
    return estimator


def decode_tree(described: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Build a decision tree after checking that every branch leads on to a later node of the tree."""
    tree_class = from_scikit_learn("sklearn.tree._tree", "Tree")
    sizes = described["tree"]
    fields = {name: decode(field, arrays) for name, field in described["nodes"].items()}
    count, index = len(fields["left_child"]), np.arange(len(fields["left_child"]))
    leaf = fields["left_child"] == -1
    for child in (fields["left_child"], fields["right_child"]):
        if len(child) != count or not (leaf | ((child > index) & (child < count))).all():
            raise ValueError("a decision tree has a branch to a node that does not exist")
    if not (leaf | ((fields["feature"] >= 0) & (fields["feature"] < sizes["n_features"]))).all():
        raise ValueError("a decision tree uses a feature that does not exist")
    classes = np.asarray(decode(described["n_classes"], arrays), dtype=np.intp)
    tree = tree_class(int(sizes["n_features"]), classes, int(sizes["n_outputs"]))
    dtype = tree.__getstate__()["nodes"].dtype
    nodes = np.zeros(count, dtype=dtype)
    for name in dtype.names:
        nodes[name] = fields[name]
    values = decode(described["values"], arrays)
    tree.__setstate__({"max_depth": int(sizes["max_depth"]), "node_count": count, "nodes": nodes, "values": values})
    return tree


def check_support_vectors(machine: Any) -> None:
    """Raise unless the arrays of a support vector machine have sizes that fit together."""
    vectors = len(machine.support_vectors_)
    if not vectors == machine._dual_coef_.shape[1] == len(machine.support_) == int(machine.n_support_.sum()):
        raise ValueError("the support vectors of a member do not fit its coefficients")
