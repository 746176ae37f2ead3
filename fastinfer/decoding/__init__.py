"""The algorithms: tensors of laws in, token ids out. Knows neither transformers nor text."""
