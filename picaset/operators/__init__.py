"""Operators on sets, one file per method."""

import os

if os.environ.get("PICASET_NATIVE") == "1":
    from picaset.operators.native_attention import enable

    enable()
