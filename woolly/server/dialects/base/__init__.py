"""base: what dialects share: fields and shapes of bodies, lists in pages, answers that a later request can continue."""
