"""Viewpoints: a toy seen from any side, and the category that each network predicts for it."""
