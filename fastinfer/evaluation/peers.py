"""What people use today, on the very same weights, prompts, dtype, threads and token counts.

Each runs in this process. The packages are optional: a missing one is a sentence, not a traceback.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fastinfer.config import ConfigError
from fastinfer.evaluation.contenders import Contender, Measured, Task
from fastinfer.evaluation.names import PEERS
from fastinfer.events import Role
from fastinfer.models.gguf import GGUF_NAME
from fastinfer.models.loading import load_pretrained

INSTALL = "python -m pip install -r requirements-bench.txt"


@dataclass
class Weights:
    """The folders that the engine's models came from, and those loaded again for the peers."""

    folders: Mapping[Role, Path]
    dtype: torch.dtype
    device: torch.device
    _loaded: dict[Role, Any] = field(default_factory=dict)

    def pretrained(self, role: Role) -> Any:
        """A transformers model of this role, loaded once for all peers."""
        if role not in self._loaded:
            model = load_pretrained(role, self.folders[role], self.dtype, self.device)
            # Every contender gives the same number of tokens: no end of text stops this one, and
            # no sampling filter of the model's own acts.
            model.generation_config = type(model.generation_config)(pad_token_id=0)
            self._loaded[role] = model.eval()
        return self._loaded[role]

    def pair(self, peer: str) -> tuple[Any, Any]:
        """Target and draft; raises `ConfigError` where the peer can't use them together."""
        if Role.DRAFT not in self.folders:
            raise ConfigError("peers", f"{peer} needs a draft model: give --draft or leave it out")
        target, draft = self.pretrained(Role.TARGET), self.pretrained(Role.DRAFT)
        rows = [m.get_output_embeddings().weight.shape[0] for m in (target, draft)]
        if rows[0] != rows[1]:
            raise ConfigError(
                "peers",
                f"{peer} needs as many output rows in the draft ({rows[1]}) as in the target "
                f"({rows[0]}); leave it out for these models",
            )
        return target, draft


class Stamps:
    """A transformers streamer that notes when tokens come. The first call brings the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        """Token ids, some at a time."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.times.append(time.perf_counter())
        self.counts.append(int(value.numel()))

    def end(self) -> None:
        """Nothing to do."""


class Transformers:
    """`generate` of transformers, with or without an assistant, all its settings the default."""

    def __init__(self, name: str, target: Any, assistant: Any | None = None) -> None:
        self.name = name
        self.target = target
        self.assistant = assistant

    def run(self, task: Task) -> Measured:
        """Through `generate`, its default dynamic cache, and a streamer for the times."""
        torch.manual_seed(task.seed)
        ids = torch.tensor([task.prompt_ids], device=self.target.device)
        stamps = Stamps()
        options: dict[str, Any] = {"do_sample": False}
        if task.temperature > 0:
            options = {
                "do_sample": True, "temperature": task.temperature, "top_k": 0, "top_p": 1.0,
            }  # fmt: skip
        if self.assistant is not None:
            options["assistant_model"] = self.assistant
        begin = time.perf_counter()
        output = self.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=task.max_new_tokens,
            streamer=stamps,
            **options,
        )
        return _measured(
            output[0, len(task.prompt_ids) :].tolist(), begin, stamps.times, stamps.counts
        )


class FlashSpec:
    """flashspec's engine as it comes: its `auto` strategy, or prompt lookup without a draft model.

    It gives no token before its call ends; the times are those of the steps that it reports.
    """

    def __init__(self, weights: Weights) -> None:
        self.name = "flashspec"
        self.lib = _require("flashspec", "flashspec")
        parts = _require("flashspec", "flashspec.engine")
        self.device, dtype = weights.device, weights.dtype
        self.drafts = Role.DRAFT in weights.folders
        self.draft: Any
        if self.drafts:
            target, draft = weights.pair(self.name)
            self.draft = parts.HuggingFaceDrafter("draft", self.device, dtype, model=draft)
        else:
            target, self.draft = weights.pretrained(Role.TARGET), parts.NgramDrafter()
        self.target = parts.TargetModel("target", self.device, dtype, model=target)

    def run(self, task: Task) -> Measured:
        """Through its engine; making the engine is not timed."""
        sampling = self.lib.SamplingConfig(temperature=task.temperature, seed=task.seed)
        options: dict[str, Any] = {"device": str(self.device), "sampling": sampling}
        if self.drafts:
            self.draft.set_temperature(task.temperature)
        else:
            one = self.lib.BanditConfig(n_arms=1)
            options |= {"drafter_strategy": "bandit", "bandit": one}
        engine = self.lib.SpeculativeEngine(
            self.lib.FlashSpecConfig(**options), [self.draft], self.target
        )
        ids = torch.tensor([task.prompt_ids], device=self.device)
        begin = time.perf_counter()
        result = engine.generate(ids, max_new_tokens=task.max_new_tokens)
        end = time.perf_counter()
        steps = result.arm_steps
        times = [end - sum(step.seconds for step in steps[i + 1 :]) for i in range(len(steps))]
        counts = [step.emitted for step in steps]
        return _measured(result.output_ids[0].tolist(), begin, times, counts)


class LlamaCpp:
    """llama.cpp through llama-cpp-python, on a GGUF file of the same weights in bfloat16."""

    def __init__(self, weights: Weights, context: int, threads: int) -> None:
        self.name = "llama-cpp"
        lib = _require("llama-cpp", "llama_cpp")
        file = weights.folders[Role.TARGET] / GGUF_NAME
        if not file.is_file():
            raise ConfigError(
                "peers",
                f"llama-cpp reads only GGUF files, and there is no {GGUF_NAME} beside the target's "
                "weights; the preset smollm2-135m has one",
            )
        if weights.dtype != torch.bfloat16:
            raise ConfigError("peers", "llama-cpp has these weights in bfloat16: --dtype bfloat16")
        self.model = lib.Llama(
            model_path=str(file), n_ctx=context, n_threads=threads, n_threads_batch=threads,
            verbose=False,
        )  # fmt: skip

    def run(self, task: Task) -> Measured:
        """Through its token generator."""
        self.model.reset()  # else it would keep the prompt of the run before
        self.model.set_seed(task.seed)
        token_ids: list[int] = []
        times: list[float] = []
        begin = time.perf_counter()
        for token in self.model.generate(
            list(task.prompt_ids), temp=task.temperature, top_k=0, top_p=1.0, min_p=0.0
        ):
            token_ids.append(int(token))
            times.append(time.perf_counter())
            if len(token_ids) == task.max_new_tokens:
                break
        return _measured(token_ids, begin, times, [1] * len(times))


def peer_contenders(names: Sequence[str], weights: Weights, context: int) -> list[Contender]:
    """The named peers, ready; raises `ConfigError` for one that can't run here."""
    made: list[Contender] = []
    for name in names:
        match name:
            case "transformers":
                made.append(Transformers(name, weights.pretrained(Role.TARGET)))
            case "transformers-assisted":
                made.append(Transformers(name, *weights.pair(name)))
            case "flashspec":
                made.append(FlashSpec(weights))
            case "llama-cpp":
                made.append(LlamaCpp(weights, context, torch.get_num_threads()))
            case _:
                raise ConfigError("peers", f"must be among {', '.join(PEERS)}, not {name!r}")
    return made


def _require(peer: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = PEERS[peer]
        how = INSTALL if peer != "llama-cpp" else f"python -m pip install {package}"
        raise ConfigError(
            "peers", f"{peer} needs the package {package}; install it with: {how}"
        ) from error


def _measured(
    token_ids: list[int], begin: float, times: Sequence[float], counts: Sequence[int]
) -> Measured:
    """Bursts of tokens: `counts[i]` of them came at `times[i]`, in seconds.

    TPOT as everywhere: the time from the first burst to the last over the tokens after the first.
    """
    later = sum(counts) - counts[0]
    return Measured(
        token_ids=tuple(token_ids),
        ttft_ms=(times[0] - begin) * 1000.0,
        tpot_ms=(times[-1] - times[0]) * 1000.0 / max(1, later),
    )
