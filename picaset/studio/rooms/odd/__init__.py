"""Odd one out: a row of faces, and which of them each network finds the least fitting."""
