"""speculation: guesses at the next tokens, by lookup or by a smaller model, computed in the step that comes anyway."""
