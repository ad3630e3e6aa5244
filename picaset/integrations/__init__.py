"""Adapters to other libraries, each a few lines; nothing here is imported before it is used."""
