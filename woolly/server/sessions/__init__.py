"""sessions: conversations that the server keeps."""
