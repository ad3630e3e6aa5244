"""``picaset version``"""

import json
import platform
from dataclasses import dataclass

import torch

from picaset import __version__
from picaset.terminal import say


@dataclass(frozen=True, kw_only=True)
class Version:
    """Print the versions to include in a bug report.

    Examples:
        picaset version
        picaset version --json
    """

    json: bool = False
    """Print one JSON line."""

    def run(self) -> int:
        versions = installed_versions()
        say(json.dumps(versions) if self.json else "\n".join(f"{name} {version}" for name, version in versions.items()))
        return 0


def installed_versions() -> dict[str, str]:
    return {
        "picaset": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }
