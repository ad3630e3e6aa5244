"""One set too large for memory, or for one machine."""
