"""Checkpoints of the public Set Transformer program give the numbers of the form they were trained with."""

import pickle
import re

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from picaset.models import from_authors_checkpoint
from tests import reference

WIDTH, INDUCING, OUTPUTS, DIM_IN, DIM_OUT = 12, 5, 3, 2, 7


def block(name: str, dim_q: int, dim_k: int, norm: bool) -> dict[str, torch.Tensor]:
    """The tensors of one of their blocks, under their names."""
    shapes = {"fc_q": (WIDTH, dim_q), "fc_k": (WIDTH, dim_k), "fc_v": (WIDTH, dim_k), "fc_o": (WIDTH, WIDTH)}
    shapes |= {"ln0": (WIDTH,), "ln1": (WIDTH,)} if norm else {}
    weights = {f"{name}.{part}.weight": torch.randn(shape) for part, shape in shapes.items()}
    return weights | {f"{name}.{part}.bias": torch.randn(WIDTH) for part in shapes}


def public_checkpoint(*, norm: bool, induced: bool = True, dropout: bool = False) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    weights = {}
    for index, width in enumerate((DIM_IN, WIDTH)):
        if induced:
            weights[f"enc.{index}.I"] = torch.randn(1, INDUCING, WIDTH)
            weights |= block(f"enc.{index}.mab0", WIDTH, width, norm) | block(f"enc.{index}.mab1", width, WIDTH, norm)
        else:
            weights |= block(f"enc.{index}.mab", width, width, norm)
    gap = 1 if dropout else 0  # a dropout layer takes a number and has no weights
    weights[f"dec.{gap}.S"] = torch.randn(1, OUTPUTS, WIDTH)
    weights |= block(f"dec.{gap}.mab", WIDTH, WIDTH, norm)
    weights |= block(f"dec.{1 + 2 * gap}.mab", WIDTH, WIDTH, norm) | block(f"dec.{2 + 2 * gap}.mab", WIDTH, WIDTH, norm)
    weights[f"dec.{3 + 2 * gap}.weight"] = torch.randn(DIM_OUT, WIDTH)
    weights[f"dec.{3 + 2 * gap}.bias"] = torch.randn(DIM_OUT)
    return weights


def their_block(weights, name: str, Y, X, *, num_heads: int, norm: bool):
    """Compute the output of their program from the tensors under their names: O = Q + heads, O + relu(fc_o(O))."""
    part = reference.within(weights, name)
    Q, K, V = (reference.linear(part, layer, x) for layer, x in (("fc_q", Y), ("fc_k", X), ("fc_v", X)))
    width = WIDTH // num_heads
    columns = [slice(h * width, (h + 1) * width) for h in range(num_heads)]
    heads = [reference.softmax(Q[:, c] @ K[:, c].T / np.sqrt(WIDTH), axis=1) @ V[:, c] for c in columns]
    O = Q + np.concatenate(heads, axis=1)
    O = reference.layer_norm(part, "ln0", O) if norm else O
    O = O + reference.relu(reference.linear(part, "fc_o", O))
    return reference.layer_norm(part, "ln1", O) if norm else O


def their_network(tensors, X, *, induced: bool, num_heads: int, norm: bool, gap: int):
    weights = {name: tensor.double().numpy() for name, tensor in tensors.items()}
    block = {"num_heads": num_heads, "norm": norm}
    for index in range(2):
        if induced:
            Z = their_block(weights, f"enc.{index}.mab0", weights[f"enc.{index}.I"][0], X, **block)
            X = their_block(weights, f"enc.{index}.mab1", X, Z, **block)
        else:
            X = their_block(weights, f"enc.{index}.mab", X, X, **block)
    T = their_block(weights, f"dec.{gap}.mab", weights[f"dec.{gap}.S"][0], X, **block)
    for index in (1 + 2 * gap, 2 + 2 * gap):
        T = their_block(weights, f"dec.{index}.mab", T, T, **block)
    return reference.linear(weights, f"dec.{3 + 2 * gap}", T)


@pytest.mark.parametrize("norm", [False, True], ids=["without norm", "with norm"])
@pytest.mark.parametrize("induced", [True, False], ids=["ISAB", "SAB"])
@pytest.mark.parametrize("dropout", [False, True], ids=["without dropout", "with dropout"])
@pytest.mark.parametrize("num_heads", [4, 3])
def test_a_public_checkpoint_gives_the_outputs_of_their_program(tmp_path, norm, induced, dropout, num_heads):
    weights = public_checkpoint(norm=norm, induced=induced, dropout=dropout)
    torch.save({"state_dict": weights}, tmp_path / "model.tar")
    network = from_authors_checkpoint(tmp_path / "model.tar", num_heads=num_heads).double()
    elements = torch.randn(1, 11, DIM_IN, dtype=torch.float64)
    expected = their_network(
        weights, elements[0].numpy(), induced=induced, num_heads=num_heads, norm=norm, gap=int(dropout)
    )
    assert_close(network(elements)[0], torch.from_numpy(expected))


def test_a_bare_state_dict_and_one_of_data_parallel_are_read_too(tmp_path):
    weights = public_checkpoint(norm=False)
    elements = torch.randn(2, 9, DIM_IN)
    outputs = []
    for name, content in [
        ("nested", {"state_dict": weights}),
        ("bare", weights),
        ("parallel", {f"module.{key}": tensor for key, tensor in weights.items()}),
    ]:
        torch.save(content, tmp_path / name)
        outputs.append(from_authors_checkpoint(tmp_path / name)(elements))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


class Harmful:
    def __reduce__(self):
        return (print, ("code from a checkpoint ran",))


def write(path, content) -> None:
    torch.save(content, path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {"enc.0.I": Harmful()}}, "holds more than tensors, and loading it could run code."),
        ({0: torch.zeros(2)}, 'must hold a state dict, or {"state_dict": ...}; got a dict in which 0 is a Tensor.'),
        ([1, 2, 3], 'must hold a state dict, or {"state_dict": ...}; got a list.'),
        ({"state_dict": {"fc.weight": torch.zeros(2)}}, "is not a checkpoint of the public Set Transformer program, which has no 'fc.weight'."),
        ({"enc.0.I": torch.zeros(1, 2, 4)}, "must have encoders of one kind (ISAB or SAB), a PMA, SABs and a last linear layer."),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path, capsys, content, message: str):
    write(tmp_path / "file", content)
    with pytest.raises(ValueError, match=re.escape(message)):
        from_authors_checkpoint(tmp_path / "file")
    assert "code from a checkpoint ran" not in capsys.readouterr().out


def test_a_cut_file_is_refused(tmp_path):
    write(tmp_path / "file", public_checkpoint(norm=False))
    whole = (tmp_path / "file").read_bytes()
    for size in (0, 10, len(whole) // 2):
        (tmp_path / "file").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="from_authors_checkpoint: "):
            from_authors_checkpoint(tmp_path / "file")


def test_a_plain_pickle_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(ValueError, match="could run code"):
        from_authors_checkpoint(tmp_path / "file")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        from_authors_checkpoint(tmp_path / "nowhere")


def test_heads_that_do_not_divide_the_width_are_refused(tmp_path):
    write(tmp_path / "file", public_checkpoint(norm=False))
    with pytest.raises(ValueError, match=r"num_heads must divide the width of the network in .*, 12; got 5\."):
        from_authors_checkpoint(tmp_path / "file", num_heads=5)


def test_no_heads_are_refused(tmp_path):
    with pytest.raises(ValueError, match="num_heads must be at least 1; got 0"):
        from_authors_checkpoint(tmp_path / "file", num_heads=0)


def test_encoders_of_different_sizes_are_refused(tmp_path):
    weights = public_checkpoint(norm=False)
    weights["enc.1.I"] = torch.zeros(1, INDUCING + 1, WIDTH)
    write(tmp_path / "file", weights)
    with pytest.raises(ValueError, match=re.escape("has encoders of [5, 6] inducing points")):
        from_authors_checkpoint(tmp_path / "file")


def test_a_missing_tensor_is_named(tmp_path):
    weights = public_checkpoint(norm=False)
    del weights["enc.1.mab0.fc_k.bias"]
    write(tmp_path / "file", weights)
    with pytest.raises(
        ValueError, match=re.escape("encoders.1.gather.key_map.bias must have shape (12,); in the file it is absent")
    ):
        from_authors_checkpoint(tmp_path / "file")


def test_a_missing_first_map_is_named(tmp_path):
    weights = public_checkpoint(norm=False)
    del weights["enc.0.mab1.fc_q.weight"]
    write(tmp_path / "file", weights)
    with pytest.raises(ValueError, match="has no query map in its first encoder"):
        from_authors_checkpoint(tmp_path / "file")
