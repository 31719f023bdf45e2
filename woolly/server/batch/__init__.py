"""batch: many requests in a file, answered into another: each once, in their order, whatever happens meanwhile.

In: lines as OpenAI's batches have them (`rows`). Out: a line for each, appended whole (`journal`), so that a job that
was killed goes on where its files end. `work` answers rows side by side and writes them in order; it asks through a
function, which is the app of this process (`inside`), or a server in its place. `on_ray` has stretches of rows answered
on the machines of a cluster.

What makes a job that went on give the same bytes as one that was never disturbed: an answer depends on nothing but its
request (the engine's promise), seeds are made of the job's seed and the row's `custom_id`, and all else that a clock or
a die would decide is made of the row itself (`answers`).
"""

from woolly.server.batch.journal import Journal
from woolly.server.batch.rows import ROUTES, Input, Row, Stretch, Terms
from woolly.server.batch.work import Ask, Later, Said, Tally, answer_rows

__all__ = ["ROUTES", "Ask", "Input", "Journal", "Later", "Row", "Said", "Stretch", "Tally", "Terms", "answer_rows"]
