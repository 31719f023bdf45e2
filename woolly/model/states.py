"""States: what the layers of a graph keep of a sequence, and which layer may read whose."""

from __future__ import annotations

from woolly.errors import FileError, printable
from woolly.gguf import GgufFile
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node, State


class States:
    """Of one graph that is being written."""

    def __init__(self, meta: Meta, file: GgufFile) -> None:
        self.states: dict[str, State] = {}
        self.stores: dict[int, Node] = {}  # the store node of each layer
        self._meta = meta
        self._where = printable(file.path.name)

    def carry(self, name: str, *shape: int) -> str:
        self.states[name] = State(name, shape, kind="carry")
        return name

    def reach(self, w: Block) -> int:
        """The window of a layer; 0 for one as long as the context, which hides nothing."""
        return w.window if w.window < self._meta.context else 0

    def cache(self, w: Block, k: Node, v: Node) -> State:
        """A layer's own cache of these keys and values; in a model that is not causal, all layers of one shape share
        one."""
        dim, value_dim = k.width // w.kv_heads, v.width // w.kv_heads
        shape = (w.kv_heads, dim) if dim == value_dim else (w.kv_heads, dim, value_dim)
        shared = () if self._meta.causal else self.states.values()
        state = State(f"cache.{w.index}", shape, window=self._cache_window(w))
        return next((each for each in shared if each.shape == shape), state)

    def cache_of(self, w: Block, layer: int) -> tuple[State, Node]:
        """The cache that a layer has filled and another one reads, and the node that stores into it."""
        if layer in self.stores:
            state, stored = self.states[self.stores[layer].inputs[2]], self.stores[layer]
            if (state.window, state.dim) == (self._cache_window(w), w.head_dim) and w.heads % state.heads == 0:
                return state, stored
        raise FileError(
            f"{self._where}: layer {w.index} has no keys, and layer {layer} none that it could use",
            suggestion="the file was made wrongly: get another one",
        )

    def _cache_window(self, w: Block) -> int:
        """The window of a layer's cache; 0 in a model that is not causal, because all that a row sees is in its
        step."""
        return self.reach(w) if self._meta.causal else 0
