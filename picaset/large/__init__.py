"""Sets that are too large for memory, or for one process."""
