"""records: what outlives the server, one private file for each. `kind` is the bytes of a file, `folder` the files,
`store` the records in memory, as the event loop has them.

What holds, whichever call fails and whenever the process is killed:
- A record is on the disk when `put` or `change` has returned. Where one raised, the file and the record are as before.
- No file is deleted because it cannot be read. One that cannot be read now is read later. One that was read whole and
  has another digest than its first line tells is set aside under another name, where an operator can look at it; one
  of another version stays where it is.
- What is written can be read: both have the same bound.
- Writes of one record follow each other in the order in which they were asked for.
"""

from __future__ import annotations

from woolly.server.records.kind import RecordKind
from woolly.server.records.store import RecordStore

__all__ = ["RecordKind", "RecordStore"]
