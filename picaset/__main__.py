"""Entry point of ``python -m picaset``, which is the ``picaset`` command."""

import sys

from picaset.cli import main

sys.exit(main())
