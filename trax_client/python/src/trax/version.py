"""The version of this package, the same as that of the extension it was built for."""

__version__ = "0.2.0"
