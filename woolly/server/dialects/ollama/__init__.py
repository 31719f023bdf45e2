"""ollama: Ollama's routes under /api."""
