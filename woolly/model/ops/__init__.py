"""ops: every operation of a graph, defined to the bit in NumPy, with the rule for its shape."""
