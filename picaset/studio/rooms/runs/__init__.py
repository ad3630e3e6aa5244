"""Runs: training curves, settings side by side, and the tables of the paper."""
