"""mcp: the tools of other programs, by the Model Context Protocol.

In: servers that the settings name, each a command to start or a URL. Out: their tools as a chat offers them, and what
a call of one says, as text. `rpc` has the messages, which our own server (server/mcp.py) uses too.
What holds:
- A server is a stranger. One that dies, hangs, floods, answers nonsense or another's question costs one sentence: it is
  let go, and asked anew the next time.
- Every wait has an end, every answer a size. A command sees of our environment only what programs need to run.
- Nothing here decides whether a tool may be called: who asks for a call has asked the user, or the settings.
"""

from woolly.mcp.client import Client, Result
from woolly.mcp.toolbox import Offered, Toolbox

__all__ = ["Client", "Offered", "Result", "Toolbox"]
