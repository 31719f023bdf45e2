"""output: the text of an answer taken apart while it grows: thoughts, text and calls, each by its style."""
