"""gbnf: llama.cpp's grammars, read and written as Lark."""
