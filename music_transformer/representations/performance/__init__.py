"""Piano with expressive timing."""
