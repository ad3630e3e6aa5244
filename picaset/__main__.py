"""``python -m picaset`` is ``picaset``."""

import sys

from picaset.cli import main

sys.exit(main())
