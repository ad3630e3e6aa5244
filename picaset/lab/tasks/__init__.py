"""Tasks: each has data, a network, a loss and a score, and is a frozen dataclass with the methods of ``Task``."""
