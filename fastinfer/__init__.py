"""fastinfer: watch a language model decode faster, and check that nothing was lost."""

__version__ = "0.1.0"
