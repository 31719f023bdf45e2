"""device: what computes a plan: the processor of this machine, in `cpu`.

In: a program and an open file, then one batch a step. Out: logits. A device packs the weights, keeps the cache and runs
the instructions; it decides nothing about a model.
"""
