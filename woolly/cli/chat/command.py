"""Talk with a model; the same command as `woolly run`.

    woolly chat                 with the default model
    woolly chat model.gguf      with a file
    woolly chat smollm2 "Hi"    with a prompt: one answer, as `woolly run` gives it
    woolly chat --server URL    with the model of a server, such as http://127.0.0.1:8080

In the chat, /help lists what can be done. Ctrl-C stops an answer, Ctrl-D leaves.
"""

from woolly.cli.run import arguments, call

__all__ = ["arguments", "call"]
