"""sampling: from logits to a token: the stages in NumPy, and the sampler that runs them for a step."""
