"""llama_cpp: llama-server's own routes, a file for each kind of answer."""
