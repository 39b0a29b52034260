"""Four voices on a grid of sixteenths."""
