"""`python -m fastinfer`."""

from fastinfer.cli import run

if __name__ == "__main__":
    run()
