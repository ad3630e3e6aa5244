"""Numbers of the paper (Zare and Nguyen 2021), to be shown beside the measured ones."""

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
"""Log-likelihood per point at shifts 0, +8, -8, +10, -10, +12, -12. The paper does not say which DeepSet it means; its
row is compared with the one that takes a mean."""

TABLE_3: dict[str, tuple[float, float]] = {
    "deepset-mean": (68.62, 64.10),
    "set-transformer": (75.19, 74.26),
    "pb1": (79.36, 78.69),
    "pb2": (83.38, 82.18),
    "pb3": (85.98, 84.47),
    "capsules": (86.5, 87.7),
}
"""Accuracy in percent on smallNORB at novel azimuths and at novel elevations. Capsules are those of Hinton et al. 2018,
which the paper quotes. The paper does not say which DeepSet it means."""

TABLE_4: dict[str, tuple[float, float]] = {
    "set-transformer": (0.5941, 0.4386),
    "rff-pma": (0.5564, 0.1583),
    "rff-sa-pma": (0.6456, 0.2657),
    "sa-pma": (0.6872, 0.2987),
    "rff-pb": (0.5783, 0.1691),
    "rff-sa-pb": (0.7568, 0.4159),
    "sa-pb": (0.7928, 0.4720),
    "sa-gpb": (0.8100, 0.5317),
}
"""AUROC and AUPR on CelebA; the first row is from the Set Transformer paper (Lee 2019)."""
TABLE_4_GUESSING = (0.5, 0.125)

TABLE_5: dict[str, tuple[float, float, float]] = {
    "dspn10": (72.8, 59.2, 39.0),
    "dspn30": (85.2, 81.1, 47.4),
    "slot-attention": (94.3, 86.7, 56.0),
    "set-transformer": (50.0, 16.2, 2.0),
    "pb3": (89.6, 74.3, 33.0),
}
"""Average precision in percent at distances infinity, 1 and 0.5, on all of CLEVR."""
