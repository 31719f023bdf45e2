"""models: which models there are, which are loaded, who uses them and who waits for them."""
