"""Names of what a benchmark can run. Nothing heavy here: the command line reads them too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BASELINE = "autoregressive"  # every ratio is to this one

# Method names of the benchmark -> options of `DecodeConfig`.
METHODS: Mapping[str, Mapping[str, Any]] = {
    BASELINE: {"method": "autoregressive"},
    "autoregressive-uncached": {"method": "autoregressive", "use_cache": False},
    "speculative": {"method": "speculative"},
    "prompt-lookup": {"method": "speculative", "draft": "prompt-lookup"},
    "lookup-first": {"method": "speculative", "draft": "lookup-first"},
    "self": {"method": "speculative", "draft": "self"},
    "cascade": {"method": "cascade"},
    "cascade-self": {"method": "cascade", "intermediate": "self"},
}

# What people use today -> the package that it needs, where that is not one of ours.
PEERS: Mapping[str, str | None] = {
    "transformers": None,
    "transformers-assisted": None,
    "flashspec": "flashspec",
    "llama-cpp": "llama-cpp-python",
}

# Data sets that `ppl` and `download` know by a name.
CORPORA = ("wikitext-2", "pg19")

UNCOMPRESSED = "uncompressed"  # the whole cache, which presses are compared with
