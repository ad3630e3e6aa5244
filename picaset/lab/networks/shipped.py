"""Networks that come with picaset, each in a folder of its own with a model card; all are trained on generated data."""

from importlib import resources
from pathlib import Path

from picaset.lab.networks.odd_one_out import OddOneOutNetwork

WEIGHTS = Path(str(resources.files("picaset"))) / "studio" / "weights"
ODD_FACES = WEIGHTS / "odd_one_out_faces"


def odd_faces_network() -> OddOneOutNetwork:
    """Finds the odd one in a set of drawn faces; kept in half precision, computes in single.

    Example:
        >>> network = odd_faces_network()
        >>> network.config["pool"]
        'generalized'
    """
    return OddOneOutNetwork.from_pretrained(ODD_FACES).float()
