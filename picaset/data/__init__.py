"""Where sets come from."""
