"""Offline chat and knowledge-base answers on a small board: one daemon, one SQLite file."""

__version__ = "0.1.0"
