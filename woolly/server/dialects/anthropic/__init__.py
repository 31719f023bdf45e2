"""anthropic: Anthropic's messages."""
