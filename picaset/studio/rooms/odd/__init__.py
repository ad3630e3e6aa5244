"""Odd one out: sets of faces, and the probability that each network assigns to each face of not belonging."""
