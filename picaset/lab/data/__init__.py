"""Data sets: loaders for the original files, and generators of stand-ins."""
