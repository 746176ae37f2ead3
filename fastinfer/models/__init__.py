"""Weights, tokenizers and caches: the only code that knows transformers."""
