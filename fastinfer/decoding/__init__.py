"""The algorithms: laws in, token ids out. Knows neither transformers nor text."""
