"""blocks: what layers of several families have in common, written with a Builder."""
