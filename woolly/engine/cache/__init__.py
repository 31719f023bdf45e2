"""cache: the pages of sequences, snapshots of carried states, and both on disk."""
