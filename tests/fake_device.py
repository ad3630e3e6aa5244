"""A device that exists in tests only, to see that a program keeps its tensors together where there is no GPU.

    with FakeDevice():
        SetClassifier(device="fake").fit(sets, labels)

Inside, a tensor on the device ``fake`` has values, in the memory of the CPU. As on a GPU, an operation that mixes it
with a tensor on the CPU raises, unless that has no dimension or is an index, and ``numpy()`` needs ``cpu()`` first.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # pyright: ignore

NAME = "fake"


class Backend:
    """Answers to torch about the device: there is one inside ``FakeDevice`` and none outside."""

    num_devices = 0

    def device_count(self) -> int:
        return self.num_devices

    def is_available(self) -> bool:
        return self.num_devices > 0

    def is_initialized(self) -> bool:
        return self.is_available()

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """The same for the part of torch that is written in C++."""

    def is_available(self) -> bool:
        return BACKEND.is_available()

    def has_primary_context(self, dev_id: int) -> bool:
        return BACKEND.is_available()

    def is_built(self) -> bool:
        return True


BACKEND = Backend()
_setup_privateuseone_for_python_backend(NAME, backend_module=BACKEND, hook=Hooks())


class OnDevice(Tensor):
    """A tensor on the fake device."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "OnDevice":
        with torch.inference_mode(False):
            tensor = Tensor._make_wrapper_subclass(  # pyright: ignore
                cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
                device=NAME, requires_grad=False,
            )  # fmt: skip
        tensor.values = values
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})


class ConversionMode(TorchFunctionMode):
    """Conversion of arrays and numbers, where dispatch does not see the new tensor: on the CPU, then moved."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and is_here(kwargs.get("device")):
            del kwargs["device"]
            return function(*args, **kwargs).to(NAME)
        if function is Tensor.new_tensor and isinstance(args[0], OnDevice):
            return torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)).to(NAME)
        if function is Tensor.__getitem__ and isinstance(args[0], OnDevice) and isinstance(args[1], tuple):
            index = tuple(torch.tensor(part, dtype=torch.long) if isinstance(part, list) else part for part in args[1])
            return function(args[0], index)
        return function(*args, **kwargs)


class FakeDevice(TorchDispatchMode):
    """A context in which tensors that are created on the device have values; ``moved`` counts copies to it."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0
        self.conversion = ConversionMode()

    def __enter__(self) -> "FakeDevice":
        BACKEND.num_devices += 1
        self.conversion.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.conversion.__exit__(*error)
        BACKEND.num_devices -= 1

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = run(function, args, kwargs or {})
        self.moved += is_copy(function) and isinstance(result, OnDevice) and not isinstance(args[0], OnDevice)
        return result


def is_here(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def is_copy(function: Any) -> bool:
    """Whether an operation may have inputs and results on different devices."""
    return function.name().partition(".")[0] in ("aten::to", "aten::_to_copy", "aten::copy_")


def is_index(function: Any) -> bool:
    """Whether the tensors after the first are indices, which may be on the CPU."""
    return "index" in function.name() and function.name() != "aten::index_add_"


def run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation with the values of its tensors, and put its results on the device that it names, or theirs."""
    leaves = tree_leaves((args, kwargs))
    tensors = [value for value in leaves if isinstance(value, Tensor)]
    here = any(isinstance(tensor, OnDevice) for tensor in tensors)
    if here and not is_copy(function):
        checked = args[:1] if is_index(function) else tensors
        if any(not isinstance(tensor, OnDevice) and tensor.dim() > 0 for tensor in checked):
            raise RuntimeError(f"{function.name()}: expected all tensors to be on one device; got {NAME} and cpu")
    devices = [value for value in leaves if isinstance(value, torch.device)]
    if devices:
        here = is_here(devices[0])
    elif function.name().startswith("aten::copy_"):
        here = isinstance(args[0], OnDevice)

    def on_cpu(value: Any) -> Any:
        if isinstance(value, OnDevice):
            return value.values
        return torch.device("cpu") if isinstance(value, torch.device) else value

    values, named = tree_map(on_cpu, (args, kwargs))
    result = function(*values, **named)
    if not devices and any(result is value for value in values if isinstance(value, Tensor)):  # in place
        return next(arg for arg, value in zip(args, values, strict=True) if result is value)
    return tree_map(lambda value: OnDevice(value) if here and isinstance(value, Tensor) else value, result)
