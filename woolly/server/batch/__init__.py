"""batch: many requests in a file, answered into another: each once, in their order, whatever happens meanwhile.

In: lines as OpenAI's batches have them (`rows`). Out: a line for each, appended whole (`journal`), so that a job that
was killed goes on where its files end. `work` answers rows side by side and writes them in order; it asks a
`RowAnswerer`, which is the app of this process (`inside`) or a client of a server. `on_ray` has ranges of rows answered
on the machines of a cluster.

Why a job that was continued gives the same bytes as one that was never interrupted: an answer depends on nothing but
its request (the engine's promise), seeds are made of the job's seed and the row's `custom_id`, ids of the row itself,
and the time in all answers is the job's (`answers`).
"""

from woolly.server.batch.journal import Journal
from woolly.server.batch.rows import ENDPOINTS, BatchRow, Input, RowRange, Terms
from woolly.server.batch.work import Retry, RowAnswerer, RowResult, Tally, answer_rows

__all__ = [
    "ENDPOINTS",
    "BatchRow",
    "Input",
    "Journal",
    "Retry",
    "RowAnswerer",
    "RowRange",
    "RowResult",
    "Tally",
    "Terms",
    "answer_rows",
]
