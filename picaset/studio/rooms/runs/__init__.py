"""Runs as they train, their settings side by side, and the tables of the paper."""
