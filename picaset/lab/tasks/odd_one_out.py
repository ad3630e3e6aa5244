"""Odd one out: find the image of a set that lacks the two attributes which all others share (Table 4, Figures 1 and 5).

Metrics are AUROC and AUPR over the elements of all sets together, and how often the odd image has the highest score.
Training, validation and test sets come from the official parts of the data.

Dimensions:  B sets   N images of a set   F faces   A albums of a batch   M sets of an album
"""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from picaset.checks import check_choice
from picaset.extras import require
from picaset.lab.data.celeba import read_celeba
from picaset.lab.data.drawn_faces import draw_faces
from picaset.lab.data.face_sets import (
    Album,
    Faces,
    OddSets,
    Part,
    album_from_sets,
    augment_faces,
    draw_album,
    fixed_sets,
    usable_pairs,
)
from picaset.lab.data.folders import cache_folder, data_folder
from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.lab.tasks.task import Task, network_settings
from picaset.pretrained import ModuleConfig

Objective = Literal["elements", "authors"]
SIZES = (3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Set sizes that a trained network is tested on, as far as there are enough images."""
SETS_OF_A_SIZE = 500
NUM_SHOWN = 24
"""Number of test sets whose scores are recorded for the figures."""
DRAWN_SEED = 2021
"""Seed of the drawn faces, the same for every run."""
NETWORK = ModuleConfig.of(OddOneOutNetwork, form="authors", norm=True)
"""SA + GPB of Table 4."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OddOneOut(Task):
    """Set anomaly detection on faces."""

    network: ModuleConfig = NETWORK
    data: Literal["drawn", "celeba"] = "drawn"
    """Drawn faces, the stand-in, or CelebA below PICASET_DATA."""
    num_faces: int = 4096
    """Number of drawn faces."""
    objective: Objective = "elements"
    """Cross-entropy over the elements, or the loss of the authors' program."""
    set_size: int = 8
    """Images of a set."""
    num_fixed_sets: int = 800
    """Number of training sets, drawn once as in the paper; 0 draws new sets at every step."""
    drawn_per_album: int = 1
    """Number of sets whose images form an album, if sets are drawn at every step."""
    sets_per_album: int = 1
    """Number of sets made from the images of an album, each of which is encoded once; an album is one example."""
    shake: bool = False
    """Whether training images are mirrored and moved by up to four pixels at random."""
    num_test_sets: int = 200
    """Number of test sets, as many as in the paper."""
    num_scored_sets: int = 500
    """Number of validation sets."""

    def __post_init__(self) -> None:
        self.check_network("OddOneOutNetwork")
        self.check_at_least_one("num_faces", "drawn_per_album", "sets_per_album", "num_test_sets", "num_scored_sets")
        if self.sets_per_album < self.drawn_per_album:
            raise ValueError(
                f"sets_per_album must be at least drawn_per_album, {self.drawn_per_album}; got {self.sets_per_album}."
            )
        if self.num_fixed_sets and self.sets_per_album > 1:
            raise ValueError(
                "sets_per_album must be 1 with num_fixed_sets, because fixed sets share no images; "
                f"got {self.sets_per_album} and {self.num_fixed_sets}."
            )
        if self.set_size not in range(3, 65):
            raise ValueError(f"set_size must be from 3 to 64; got {self.set_size}.")

    @classmethod
    def upgrade(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return network_settings(cls, settings, NETWORK)

    def faces(self) -> Faces:
        if self.data == "drawn":
            return draw_faces(self.num_faces, seed=DRAWN_SEED)
        return read_celeba(data_folder("celeba"), cache_folder())

    def sets(self, part: Part, num_sets: int, set_size: int | None = None) -> OddSets:
        return fixed_sets(self.faces(), part, num_sets, set_size or self.set_size)

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        albums = [self.album(step * num_examples + index, seed) for index in range(num_examples)]
        return (
            as_tensor(np.stack([album.images for album in albums])),
            torch.as_tensor(np.stack([album.members for album in albums])),
            torch.as_tensor(np.stack([album.odd for album in albums])),
        )

    def album(self, number: int, seed: int) -> Album:
        """Return the example with this number, counted over all steps; depends on number and seed alone."""
        faces, generator = self.faces(), np.random.default_rng([seed, number])
        if self.num_fixed_sets:
            epoch, place = divmod(number, self.num_fixed_sets)
            index = np.random.default_rng([seed, epoch, 0]).permutation(self.num_fixed_sets)[place]
            sets = cached_sets(self, "train", self.num_fixed_sets)
            album = album_from_sets(faces, OddSets(*(part[index : index + 1] for part in sets)))
        else:
            album = draw_album(
                faces,
                "train",
                num_drawn=self.drawn_per_album,
                num_sets=self.sets_per_album,
                set_size=self.set_size,
                generator=generator,
            )
        return album._replace(images=augment_faces(album.images, generator)) if self.shake else album

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, members, odd = batch
        scores = network(images, members=members)  # (A, M, N)
        return odd_one_out_loss(scores.flatten(0, 1), odd.flatten(), loss=self.objective)

    def score(self, network: nn.Module) -> dict[str, float]:
        vectors = self.vectors(network, "validation")
        scores = detection_scores(*self.scored(network, vectors, self.sets("validation", self.num_scored_sets)))
        return {"score": scores["auroc"], **scores}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        vectors = self.vectors(network, "test")
        sets = self.sets("test", self.num_test_sets)
        scores, odd = self.scored(network, vectors, sets)
        guesses = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0))
        by_size = [
            {
                "set_size": size,
                **detection_scores(*self.scored(network, vectors, self.sets("test", self.num_sets_of_a_size(), size))),
            }
            for size in self.possible_sizes()
        ]
        faces = self.faces()
        return {
            "data": faces.description,
            "test": {"num_sets": self.num_test_sets, **detection_scores(scores, odd)},
            "random_guessing": detection_scores(guesses, odd),
            "by_size": by_size,
            "sets_of_a_size": self.num_sets_of_a_size(),
            "milliseconds_per_set": self.milliseconds_per_set(network, sets),
            "shown": {
                "members": sets.members[:NUM_SHOWN].tolist(),
                "odd": sets.odd[:NUM_SHOWN].tolist(),
                "attributes": [[faces.names[name] for name in pair] for pair in sets.pairs[:NUM_SHOWN]],
                "scores": scores[:NUM_SHOWN].double().numpy().round(4).tolist(),
            },
        }

    def describe_data(self) -> str:
        kind = f"{self.num_fixed_sets} fixed" if self.num_fixed_sets else "fresh"
        return f"{self.faces().description}; {kind} training sets and {self.num_test_sets} test sets of {self.set_size}"

    def num_sets_of_a_size(self) -> int:
        """Return the number of test sets of each size; few if the test itself is small."""
        return min(SETS_OF_A_SIZE, 5 * self.num_test_sets)

    def possible_sizes(self) -> list[int]:
        faces = self.faces()
        attributes = faces.attributes[faces.of_part("test")]
        return [size for size in SIZES if len(usable_pairs(attributes, size))]

    @torch.no_grad()
    def vectors(self, network: nn.Module, part: Part) -> Float[Tensor, "F E"]:
        """Encode every face of a part once; rows of other faces are zero."""
        assert isinstance(network, OddOneOutNetwork)
        faces, weight = self.faces(), next(network.parameters())
        vectors = torch.zeros(len(faces), self.network["dim"], dtype=weight.dtype, device=weight.device)
        for chunk in np.array_split(faces.of_part(part), max(1, len(faces.of_part(part)) // 128)):
            vectors[torch.as_tensor(chunk)] = network.encode_images(as_tensor(faces.images[chunk]).to(weight.device))
        return vectors

    @torch.no_grad()
    def scored(self, network: nn.Module, vectors: Tensor, sets: OddSets) -> tuple[Float[Tensor, "B N"], Tensor]:
        """Return the probability of each image to be the odd one, and the index of the odd one."""
        assert isinstance(network, OddOneOutNetwork)
        scores = network.scorer(vectors[torch.as_tensor(sets.members)])
        return scores.softmax(dim=1).cpu(), torch.as_tensor(sets.odd)

    @torch.no_grad()
    def milliseconds_per_set(self, network: nn.Module, sets: OddSets) -> float:
        """Return the time from images to scores, in batches of eight sets."""
        device = next(network.parameters()).device
        images = as_tensor(self.faces().images[sets.members[:8]]).to(device)
        network(images)
        start = time.perf_counter()
        for _ in range(5):
            network(images)
        return 1e3 * (time.perf_counter() - start) / (5 * len(images))


@cache
def cached_sets(task: OddOneOut, part: Part, num_sets: int) -> OddSets:
    return task.sets(part, num_sets)


def odd_one_out_loss(
    scores: Float[Tensor, "B N"], odd: Int[Tensor, " B"], *, loss: Objective = "elements"
) -> Float[Tensor, ""]:
    """Cross-entropy over the elements of each set, averaged over the sets.

    ``loss="authors"`` is the loss of the authors' program: a softmax over the elements, whose probabilities are then
    used as logits of a binary cross-entropy for each element. The sigmoid of a probability lies between 0.5 and 0.73,
    so this loss cannot fall below about 0.65 for eight elements, and its gradient vanishes where the softmax
    saturates.

    Example:
        >>> scores, odd = torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([0])
        >>> round(float(odd_one_out_loss(scores, odd)), 4)
        0.0
        >>> round(float(odd_one_out_loss(scores, odd, loss="authors")), 4)
        0.5665
    """
    check_choice(loss, ("elements", "authors"), caller="odd_one_out_loss", name="loss")
    if loss == "elements":
        return functional.cross_entropy(scores, odd)
    target = functional.one_hot(odd, scores.shape[1]).to(scores.dtype)
    return functional.binary_cross_entropy_with_logits(scores.softmax(dim=1), target)


def detection_scores(scores: Float[Tensor, "B N"], odd: Int[Tensor, " B"]) -> dict[str, float]:
    """Return AUROC and AUPR over the elements of all sets together, and how often the odd one has the highest score.

    Example:
        >>> detection_scores(torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]), torch.tensor([0, 1]))["auroc"]
        0.875
    """
    metrics: Any = require("torchmetrics.functional.classification", extra="experiments", purpose="measuring AUROC")
    is_odd = functional.one_hot(odd, scores.shape[1]).flatten()
    return {
        "auroc": float(metrics.binary_auroc(scores.flatten(), is_odd)),
        "aupr": float(metrics.binary_average_precision(scores.flatten(), is_odd)),
        "top1": float((scores.argmax(dim=1) == odd).double().mean()),
    }


def as_tensor(images: UInt8[np.ndarray, "*n S S 3"]) -> UInt8[Tensor, "*n 3 S S"]:
    """Return images as a tensor with channels first, without copying."""
    return torch.as_tensor(np.ascontiguousarray(images)).movedim(-1, -3)
