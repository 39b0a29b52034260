"""How good a model is and what its music is like: NLL, counting baselines, musical statistics."""
