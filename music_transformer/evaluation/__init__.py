"""How good a model is: NLL beside baselines, what it knows by heart, how its music goes on."""
