"""dialects: the APIs that the server speaks, a file or folder for each: tables of routes and the functions behind them.

A dialect states its bodies as msgspec Structs (types, ranges, defaults). Its functions turn a body into `Request`s and
`Event`s into an answer; server/generate does what lies between. server/dialect_table.py lists the dialects.
"""
