"""chat: talking with a model at a terminal.

`loop` reads what is typed, `commands` has the slash commands, `session` answers. `command` is `woolly chat`, and
`woolly run` comes here too where it has no prompt.
"""
