"""The HTTP API: its routes, its queue, and the process that serves them without the page."""
