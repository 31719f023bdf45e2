"""llm: the library, a model that you can talk to, and how it is loaded.

In: the name of a model and requests. Out: events. llm.py joins what loading.py makes (an engine's runner, a vocabulary,
a template) with prompter.py, which turns requests into tokens and needs no weights, and with encoder.py, which reads
whole texts. Each is imported by its own name: a gateway has no weights and needs the prompter alone.
"""
