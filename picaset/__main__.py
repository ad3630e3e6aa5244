"""``python -m picaset`` is ``picaset``."""

import sys

from picaset.commands import main

sys.exit(main())
