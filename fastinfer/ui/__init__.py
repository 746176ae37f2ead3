"""The page: the only package that knows gradio and plotly."""
