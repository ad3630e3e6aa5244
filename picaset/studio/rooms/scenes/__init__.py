"""Scenes: an image, the objects that a network detects in it, and the attention of each of its templates."""
