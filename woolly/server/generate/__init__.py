"""generate: every answer and every embedding that a model gives over HTTP."""
