"""server: models over HTTP, for programs that speak OpenAI's or Woolly's own dialect.

In: settings (flags, environment, a TOML file). Out: a listening process that answers until it is told to end.
A request passes `guard` (host, origin, key, size), is read by a dialect into `Request`s, waits in a fair line, and its
`Event`s are written back by the same dialect. Never computes on the event loop, never opens a file that a request names
by a path outside the model folders, never fetches anything, never writes a prompt or a key into a log.
Read door.py, then answer.py; dialects/ holds one file for each way of speaking. A gate is the same with the models of
other processes: read fleet.py, then fleet_model.py.
"""

from woolly.config import Settings
from woolly.server.app import App, build
from woolly.server.serve import serve
from woolly.server.settings import read_settings

__all__ = ["App", "Settings", "build", "read_settings", "serve"]
