"""Viewpoints: a toy that is turned, and what each network takes it for."""
