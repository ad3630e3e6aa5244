"""``picaset studio``"""

import gc
from dataclasses import dataclass
from pathlib import Path

from picaset.extras import require


@dataclass(frozen=True, kw_only=True)
class Studio:
    """Open a page on which you play with sets, and see live what the operators make of them.

    It runs on this machine alone: no request leaves it, and other machines cannot reach it. Ctrl-C ends it.

    Examples:
        picaset studio
        picaset studio --runs results/runs --port 8765 --no-browser
    """

    runs: Path | None = None
    """The folder of the run directories to show; without it, runs and then results/runs."""
    port: int = 0
    """Where to listen; 0 takes a free port."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than this machine's own lets others in: there is no password."""
    browser: bool = True
    """Open the page in your browser."""

    def run(self) -> int:
        for module in ("fastapi", "uvicorn", "sklearn", "PIL"):
            require(module, extra="studio", purpose="the studio")
        from picaset.studio.rooms import Settings
        from picaset.studio.server import serve

        if self.runs is not None and not self.runs.is_dir():
            raise ValueError(f"--runs: there is no folder {self.runs}.")
        settings = Settings() if self.runs is None else Settings(runs=(self.runs,))
        serve(settings, host=self.host, port=self.port, browser=self.browser)
        gc.freeze()  # nothing is looked through for garbage any more: that would hold the terminal for seconds
        return 0
