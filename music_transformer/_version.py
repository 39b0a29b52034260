"""The version: the one place that states it."""

__version__ = "0.2.0"
