"""Scenes: an image, the objects that a network sees in it, and what each of its templates looks at."""
