"""cli: the command `woolly`, thin.

In: the words after `woolly`, standard input, the environment. Out: text, and an exit code that says what went wrong.
A command is one file with `arguments(parser)` and `call(args)`, and one row of `commands.COMMANDS`; only the one that
was named is imported. Errors become one line on standard error in `main.main` and nowhere else.
Never computes anything itself: commands call the library as any program could.
"""

from woolly.cli import main

__all__ = ["main"]
