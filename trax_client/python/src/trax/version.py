"""The version of this package, which is that of the extension that it was made with."""

__version__ = "0.2.0"
