"""Operators on sets, one file per method."""
