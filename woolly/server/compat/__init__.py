"""compat: routes that clients of Woolly's older documents rely on, and the exceptions for the desktop client Ole.

Nothing imports it but the table of dialects and the app, so that the rest of the server knows none of these clients.
"""
