"""reference: a graph run in NumPy, exactly as the core must compute it, or freely as plain mathematics."""
