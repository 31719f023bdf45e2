"""woolly: Woolly's own routes under /api/v1, and the description of all routes."""
