"""What the paper reports (Zare and Nguyen 2021), to stand beside what is measured here."""

TABLE_2_ORACLE = -1.4697

TABLE_2: dict[str, tuple[float, ...]] = {
    "deepset-mean": (-2.1554, -9.2896, -15.6981, -11.7255, -18.4507, -14.1290, -23.5431),
    "set-transformer": (-1.5634, -2.2196, -2.2928, -2.5896, -2.8368, -2.9949, -3.6319),
    "ae16-pma": (-1.5700, -2.1487, -2.3363, -2.6069, -3.0373, -3.1790, -3.8504),
    "ae32-pma": (-1.5529, -2.2316, -2.4960, -2.5145, -2.9975, -2.8237, -3.5220),
    "ae16-pb": (-1.5892, -2.0492, -2.3424, -2.3261, -2.8485, -2.5434, -3.4351),
    "sa-pb": (-1.6327, -2.6569, -2.4408, -3.3984, -2.8037, -4.5694, -3.1316),
    "ae32-pb": (-1.5191, -2.4391, -2.0305, -2.9861, -2.2699, -3.4665, -2.6099),
    "ae32-pb-sa": (-1.5020, -1.8994, -1.9528, -2.1654, -2.1838, -2.4921, -2.6190),
}
"""Log-likelihood per point at shifts 0, +8, -8, +10, -10, +12, -12; which of the two DeepSets is meant, the paper does
not say, so its row stands beside the one with a mean."""
