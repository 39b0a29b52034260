"""A melody, and what a piano plays to it."""
