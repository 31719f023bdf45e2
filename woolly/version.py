"""version: which Woolly this is; the build reads it here too, and this module imports nothing."""

__version__ = "0.2.0"
