"""openai: OpenAI's routes under /v1, a file for each kind of answer."""
