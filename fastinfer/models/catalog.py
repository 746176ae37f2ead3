"""The presets: which models go together in which role, what they cost, and under which licence.

Sizes are of the safetensors files at the pinned commit, as the Hub lists them, rounded. A revision
is `main` where we know no commit by its hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastinfer.config import ConfigError
from fastinfer.events import Role

BUNDLED = Path(__file__).resolve().parents[2] / "assets" / "models"
APACHE = "Apache-2.0"
LLAMA2 = "Llama 2 Community Licence"


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model of a preset. `source` is what `sources.locate` takes."""

    source: str
    num_parameters: int
    download_bytes: int
    licence: str = APACHE
    gated: bool = False  # its licence must be accepted on the Hub first


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A family that shares a tokenizer. A role may be missing."""

    name: str
    summary: str
    models: dict[Role, Model]
    chat: bool = False  # answers messages; a base model continues texts
    own_decoder: bool = True  # else it runs through transformers

    @property
    def licences(self) -> tuple[str, ...]:
        """Each licence once."""
        return tuple(dict.fromkeys(model.licence for model in self.models.values()))

    @property
    def bundled(self) -> bool:
        """Whether it comes with the program."""
        return all(Path(model.source).is_relative_to(BUNDLED) for model in self.models.values())

    @property
    def num_parameters(self) -> int:
        """Of all its models."""
        return sum(model.num_parameters for model in self.models.values())


def _nano(role: Role, num_parameters: int) -> Model:
    source = str(BUNDLED / "nano" / role.value)
    return Model(source=source, num_parameters=num_parameters, download_bytes=0)


def _pythia(size: str, commit: str, num_parameters: int, download_bytes: int) -> Model:
    return Model(
        source=f"EleutherAI/pythia-{size}@{commit}",
        num_parameters=num_parameters,
        download_bytes=download_bytes,
    )


def _pythias() -> tuple[Model, Model, Model, Model]:
    return (
        _pythia("14m", "cf967c0a9a04383db6f7b1108d86b2962634b4ac", 14_067_712, 28_000_000),
        _pythia("70m", "a39f36b100fe8a5377810d56c3f4789b9c53ac42", 70_426_624, 166_000_000),
        _pythia("410m", "9879c9b5f8bea9051dcb0e68dff21493d67e9d4f", 405_334_016, 911_000_000),
        _pythia("2.8b", "2a259cdd96a4beb1cdf467512e3904197345f6a9", 2_775_208_960, 5_684_000_000),
    )


def _smollm2(size: str, commit: str, num_parameters: int) -> Model:
    return Model(
        source=f"HuggingFaceTB/SmolLM2-{size}-Instruct@{commit}",
        num_parameters=num_parameters,
        download_bytes=2 * num_parameters,
    )


def _qwen(size: str, commit: str, num_parameters: int) -> Model:
    return Model(
        source=f"Qwen/Qwen2.5-{size}-Instruct@{commit}",
        num_parameters=num_parameters,
        download_bytes=2 * num_parameters,
    )


def _llama2(size: str, commit: str, num_parameters: int) -> Model:
    return Model(
        source=f"meta-llama/Llama-2-{size}-chat-hf@{commit}",
        num_parameters=num_parameters,
        download_bytes=2 * num_parameters,
        licence=LLAMA2,
        gated=True,
    )


def _bloom(source: str, num_parameters: int) -> Model:
    return Model(
        source=f"bigscience/bloom-{source}",
        num_parameters=num_parameters,
        download_bytes=2 * num_parameters,
        licence="BigScience BLOOM RAIL 1.0",
    )


def _tiers(draft: Model, intermediate: Model, target: Model) -> dict[Role, Model]:
    return {Role.DRAFT: draft, Role.INTERMEDIATE: intermediate, Role.TARGET: target}


def _base_presets() -> tuple[Preset, ...]:
    p14m, p70m, p410m, p2800m = _pythias()
    sizes = {Role.DRAFT: 921_088, Role.INTERMEDIATE: 4_208_128, Role.TARGET: 15_769_344}
    return (
        Preset(
            name="nano",
            summary="bundled, 1M / 4M / 16M parameters, any machine",
            models={role: _nano(role, size) for role, size in sizes.items()},
        ),
        Preset(
            name="pythia-small",
            summary="EleutherAI's Pythia 14m / 70m / 410m",
            models=_tiers(p14m, p70m, p410m),
        ),
        Preset(
            name="pythia",
            summary="EleutherAI's Pythia 70m / 410m / 2.8b",
            models=_tiers(p70m, p410m, p2800m),
        ),
        Preset(
            name="bloom",
            summary="BigScience's Bloom 560m / 7b1, through transformers",
            own_decoder=False,
            models={
                Role.DRAFT: _bloom("560m@ac2ae5fab2ce3f9f40dc79b5ca9f637430d24971", 559_214_592),
                Role.TARGET: _bloom("7b1", 7_069_016_064),
            },
        ),
    )


def _chat_presets() -> tuple[Preset, ...]:
    smol = _smollm2("135M", "12fd25f77366fa6b3b4b768ec3050bf629380bac", 134_515_008)
    tiny = Model(
        source="TinyLlama/TinyLlama-1.1B-Chat-v1.0@fe8a4ea1ffedaf415f4da2f062534de366a451e6",
        num_parameters=1_100_048_384,
        download_bytes=2_200_119_864,
    )
    return (
        Preset(
            name="smollm2-135m",
            summary="SmolLM2-135M-Instruct alone, for prompt lookup; from PyPI where no Hub is",
            models={Role.TARGET: smol},
            chat=True,
        ),
        Preset(
            name="smollm2",
            summary="SmolLM2-Instruct 135M / 360M / 1.7B",
            models=_tiers(
                smol,
                _smollm2("360M", "a10cc1512eabd3dde888204e902eca88bddb4951", 361_821_120),
                _smollm2("1.7B", "31b70e2e869a7173562077fd711b654946d38674", 1_711_376_384),
            ),
            chat=True,
        ),
        Preset(
            name="qwen2.5",
            summary="Qwen2.5-Instruct 0.5B / 1.5B / 7B",
            models=_tiers(
                _qwen("0.5B", "7ae557604adf67be50417f59c2c2f167def9a775", 494_032_768),
                _qwen("1.5B", "989aa7980e4cf806f80c7fef2b1adb7bc71aa306", 1_543_714_304),
                _qwen("7B", "a09a35458c702b33eeacc393d103063234e8bc28", 7_615_616_512),
            ),
            chat=True,
        ),
        Preset(
            name="llama2",
            summary="TinyLlama-1.1B-Chat, Llama-2-Chat 7B / 70B",
            models=_tiers(
                tiny,
                _llama2("7b", "f5db02db724555f92da89c216ac04704f23d4590", 6_738_415_616),
                _llama2("70b", "e9149a12809580e8602995856f8098ce973d1080", 68_976_648_192),
            ),
            chat=True,
        ),
    )


PRESETS: dict[str, Preset] = {
    preset.name: preset for preset in (*_base_presets(), *_chat_presets())
}


def preset_named(name: str) -> Preset:
    """The preset, or a `ConfigError` that lists them all."""
    if name not in PRESETS:
        raise ConfigError("preset", f"must be one of {', '.join(PRESETS)}, not {name!r}")
    return PRESETS[name]
