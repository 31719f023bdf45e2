"""websocket: several requests at once over one connection, and the frames of their answers."""
