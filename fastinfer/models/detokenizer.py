"""Token ids to text: the tokenizer's own decoding, quick where one id at a time is asked for."""

from __future__ import annotations

from tokenizers import decoders

from fastinfer.models.loading import Tokenizer

CONTEXT_IDS = 4  # for spaces between words, which some tokenizers put in front of all but the first


class Detokenizer:
    """Decodes without special tokens; remembers the texts of single ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # The tokenizer's own Rust part: its wrapper costs more than the decoding.
        self._backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        # Byte-level tokens stand for bytes, whatever comes before them.
        byte_level = isinstance(getattr(self._backend, "decoder", None), decoders.ByteLevel)
        self.context_ids = 0 if byte_level else CONTEXT_IDS
        self._single: dict[int, str] = {}

    def __call__(self, ids: list[int]) -> str:
        """The text of these ids."""
        if len(ids) != 1:
            return self._decode(ids)
        text = self._single.get(ids[0])
        if text is None:
            text = self._single[ids[0]] = self._decode(ids)
        return text

    def _decode(self, ids: list[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=True))
