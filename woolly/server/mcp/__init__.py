"""mcp: this server's side of the Model Context Protocol, over any transport."""
