"""grammar: answers that follow a format, and the masks that hold them to it."""
