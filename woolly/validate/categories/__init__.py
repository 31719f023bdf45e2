"""categories: what a run measures, a file for each category."""
