"""server: models over HTTP, for programs that speak OpenAI's or Woolly's own dialect.

In: settings (flags, environment, a TOML file). Out: a listening process that answers until it is told to end.
The guard checks each HTTP request (host, origin, key, size), a dialect reads it into `Request`s, these wait in a fair
queue, and their `Event`s are written back by the same dialect. Never computes on the event loop, never opens a file
that a request names by a path outside the model folders, never fetches anything, never writes a prompt or a key into a
log. Read routes.py, then generate/generate.py, then one dialect, such as dialects/openai/chat.py; app.py joins them.
"""

from woolly.config import Settings
from woolly.server.app import App, build
from woolly.server.serve import serve
from woolly.server.settings import read_settings

__all__ = ["App", "Settings", "build", "read_settings", "serve"]
