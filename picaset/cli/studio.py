"""``picaset studio``"""

import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from picaset.extras import require


@dataclass(frozen=True, kw_only=True)
class Studio:
    """Open an interactive page to explore sets, operators and trained networks.

    The server runs on this machine only: it sends no request to any other, and others cannot reach it. Stop it with
    Ctrl-C.

    Examples:
        picaset studio
        picaset studio --runs results/runs --port 8765 --no-browser
    """

    runs: Path | None = None
    """Folder of the runs to show; by default runs, and then results/runs."""
    port: int = 0
    """Port to listen on; 0 chooses a free one."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than 127.0.0.1 gives other machines access, without a password."""
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
        if not serve(settings, host=self.host, port=self.port, browser=self.browser):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # the interpreter's exit would interrupt a thread in native code, which aborts the process
        gc.freeze()  # garbage collection at exit would take seconds
        return 0
