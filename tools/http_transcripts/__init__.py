"""Whole HTTP transcripts of `woolly serve`, recorded from one checkout and compared with those of another.

    .venv/bin/python -m tools.http_transcripts record --checkout ../before --out before.json
    .venv/bin/python -m tools.http_transcripts record --checkout . --out after.json
    .venv/bin/python -m tools.http_transcripts compare before.json after.json

A checkout is a folder with a .venv that Woolly is built into. Its servers are started with small models, and are asked
what stands in `cases`: tables of requests, a file for each dialect. A transcript keeps the status, the names of the
headers, and the shape of the body (shape.py) or of the events of a stream in their order. Nothing in it depends on
time or chance: two recordings of one checkout are equal.
"""
