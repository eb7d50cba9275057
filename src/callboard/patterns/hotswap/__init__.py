"""Hot swap: a model is replaced by another one while requests run."""
