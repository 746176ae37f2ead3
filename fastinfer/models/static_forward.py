"""One step of our decoder in shapes that depend on the block length and a bucket only.

The token ids, the position and the number of entries lie in tensors on the device, so that a CUDA
graph of the step is right wherever the cursor stands. Attention reads the first `bucket` entries,
256, 512, 1024 and so on, and a mask made on the device hides what lies past each token. Nothing
here waits for the device. It runs on a CPU as it is, which is where the tests prove it.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fastinfer.models.kv_cache import StaticKVCache
from fastinfer.models.transformer import Block, Slots, TransformerDecoder

SMALLEST_BUCKET = 256

# A graph is made for one storage: a first size that most requests fit in saves making it again.
FIRST_CAPACITY = 1024


def bucket_for(entries: int) -> int:
    """The smallest bucket that holds so many entries."""
    return max(SMALLEST_BUCKET, 1 << (entries - 1).bit_length())


class BucketedKVCache(StaticKVCache):
    """A cache that is read by whole buckets.

    What lies past the cursor is masked, but a weight of 0 times an infinity is not 0: so the
    storage begins as zeros.
    """

    def __init__(self, decoder: TransformerDecoder, storage: Tensor | None) -> None:
        """In the storage of an earlier request, whose entries are wiped, or in a new one."""
        super().__init__(
            num_layers=decoder.arch.num_layers,
            num_kv_heads=decoder.arch.num_kv_heads,
            head_dim=decoder.arch.head_dim,
            dtype=decoder.cache_dtype,
            device=decoder.device,
        )
        if storage is not None:
            self.storage = storage.zero_()

    def _room_for(self, entries: int) -> int:
        return bucket_for(max(entries, FIRST_CAPACITY))

    def _allocate(self, shape: tuple[int, ...]) -> Tensor:
        return self.storage.new_zeros(shape)


class StaticStep:
    """Input and output buffers of one decoder, and the step between them."""

    def __init__(self, decoder: TransformerDecoder, max_block: int) -> None:
        self._decoder = decoder
        device = decoder.device
        self._token_ids = torch.zeros(max_block, dtype=torch.long, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._entries = torch.zeros(1, dtype=torch.long, device=device)
        self._logits = torch.zeros(
            max_block, decoder.vocab_size, dtype=decoder.dtype, device=device
        )

    def move(self, position: int, entries: int) -> None:
        """Where the next block goes: its first position, and the entries that lie before it."""
        self._position.fill_(position)
        self._entries.fill_(entries)

    def feed(self, token_ids: Tensor) -> None:
        """The next block [n]."""
        self._token_ids[: len(token_ids)].copy_(token_ids)

    def logits(self, count: int, num_logits: int) -> Tensor:
        """Of the last `num_logits` of the block just run, in float32: a copy, the buffer stays."""
        rows = self._logits[count - num_logits : count]
        return rows.to(torch.float32, copy=True)

    def run(self, count: int, bucket: int, storage: Tensor) -> None:
        """Decode the block in the buffers. `storage` [layers, 2, kv_heads, capacity, head_dim].

        Caller's duty: the bucket holds the entries and the block, the rotary table its positions.
        """
        decoder = self._decoder
        steps = torch.arange(count, device=decoder.device)
        places = self._entries + steps
        block = Block(
            decoder.rotary.rotation_at(self._position + steps),
            _Attention(decoder, places, bucket),
        )
        layers = zip(
            storage.flatten(1, 2).unsqueeze(1).unbind(0),
            storage[:, 0, :, :bucket].unbind(0),
            storage[:, 1, :, :bucket].unbind(0),
            strict=True,
        )
        slots = (Slots(_Writer(entries, places), keys, values) for entries, keys, values in layers)
        with _backends(decoder.device):
            logits = decoder.run(self._token_ids[:count], block, slots, count)
        self._logits[:count].copy_(logits)


def _backends(device: torch.device) -> AbstractContextManager[None]:
    """Attention on a GPU is the memory-efficient one: the fused one that takes masks everywhere.

    Flash attention takes none. cuDNN's takes some, but plans anew for every shape that it meets.
    """
    if device.type != "cuda":
        return contextlib.nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


class _Writer:
    """Puts new entries at places that only the device knows."""

    def __init__(self, entries: Tensor, places: Tensor) -> None:
        self._entries = entries  # [1, 2 * kv_heads, capacity, head_dim]
        self._places = places  # [n]

    def __call__(self, new: Tensor) -> object:
        return self._entries.index_copy_(2, self._places, new)


class _Attention:
    """Attention over the first `bucket` entries, each token up to its own."""

    def __init__(self, decoder: TransformerDecoder, places: Tensor, bucket: int) -> None:
        # Entry j was token j: windows are not combined with dropped entries.
        distance = places[:, None] - torch.arange(bucket, device=places.device)  # [n, bucket]
        self._masks = {
            window: _mask(distance, window, decoder.cache_dtype) for window in decoder.windows
        }

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
        """query [1, heads, n, head_dim]; keys and values [kv_heads, bucket, head_dim]."""
        _, heads, count, dim = query.shape
        kv_heads, bucket, _ = keys.shape
        # Key heads become the batch, and the keys are repeated for their queries without a copy
        # (stride 0): the memory-efficient backend refuses `enable_gqa`, and the plain one that
        # would be left copies. To fold the queries into more rows of one head would do too, but
        # fewer heads keep fewer processors busy.
        shape = (kv_heads, heads // kv_heads, -1, dim)
        attended = F.scaled_dot_product_attention(
            query.reshape(shape),
            keys.unsqueeze(1).expand(kv_heads, heads // kv_heads, bucket, dim),
            values.unsqueeze(1).expand(kv_heads, heads // kv_heads, bucket, dim),
            attn_mask=self._masks[window],
        )
        return attended.reshape(1, heads, count, dim)


def _mask(distance: Tensor, window: int | None, dtype: torch.dtype) -> Tensor:
    """0 where a token may look, -inf where not."""
    hidden = distance < 0
    if window is not None:
        hidden = hidden | (distance >= window)
    return torch.zeros_like(distance, dtype=dtype).masked_fill_(hidden, float("-inf"))
