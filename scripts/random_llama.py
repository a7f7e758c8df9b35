"""Write a Llama of any size with drawn weights, with its cache as inputs and outputs.

    python -m scripts.random_llama FILE [--layers 12 --width 768 --heads 12 --groups 12 --inner 2048 ...]

It is the decoder that `qglow import-gguf` makes of a file with these tensors: nodes are those of an exporter;
batch, tokens and past are free. The head is the embedding, written as a tensor of its own, as exporters write
it. The defaults have 110 million parameters. With --weights int4 integers in blocks of 32 are drawn, tensor
by tensor, so that a model of a billion parameters takes no more memory than a few times its file; int8 is
the same with 8 bits. FILE is ONNX, or where it ends in .gguf a GGUF file with F32, F16, Q8_0 or Q4_0, for
programs that read such files (pip install gguf).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import ModelProto

from qglow.core.types import Array, Shape
from qglow.gguf.decoder import HEAD, TABLE, DecoderGraph
from qglow.gguf.file import GgufFile, GgufTensor
from qglow.gguf.formats import FORMATS
from qglow.gguf.nodes import NodeWriter
from qglow.gguf.settings import DecoderSettings
from qglow.gguf.weights import DecoderWeights

CONTEXT = 2048
"""Most tokens, as a GGUF file states it."""
SPREAD = 0.02
"""Standard deviation of weights, as language models begin their training."""
_CODES_SPREAD = 4.6
"""That of whole numbers from 0 to 15, all as likely; for 8 bits they are 16 times as large."""
_KINDS = {form.name: kind for kind, form in FORMATS.items()}
Weights = Literal["float32", "float16", "int8", "int4"]
KIND_OF: dict[Weights, str] = {"float32": "F32", "float16": "F16", "int8": "Q8_0", "int4": "Q4_0"}
_FLOATS = {"F32": np.float32, "F16": np.float16}


@dataclass(frozen=True)
class LlamaSize:
    """Sizes of a Llama. groups: heads of keys and values. inner: width within a feed-forward part."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    groups: int = 12
    inner: int = 2048
    words: int = 32000

    @property
    def depth(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    def matrices(self) -> Iterator[tuple[str, Shape]]:
        """Names and shapes [N, K] of all matrices but the head."""
        keys = self.groups * self.depth
        yield TABLE, (self.words, self.width)
        for layer in range(self.layers):
            own = f"blk.{layer}."
            yield f"{own}attn_q.weight", (self.width, self.width)
            yield f"{own}attn_k.weight", (keys, self.width)
            yield f"{own}attn_v.weight", (keys, self.width)
            yield f"{own}attn_output.weight", (self.width, self.width)
            yield f"{own}ffn_gate.weight", (self.inner, self.width)
            yield f"{own}ffn_up.weight", (self.inner, self.width)
            yield f"{own}ffn_down.weight", (self.width, self.inner)

    def norms(self) -> Iterator[str]:
        """Names of the vectors of norms."""
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight"
            yield f"blk.{layer}.ffn_norm.weight"
        yield "output_norm.weight"

    @property
    def parameters(self) -> int:
        """How many weights there are, those of the head, which is the embedding, once."""
        return sum(rows * depth for _, (rows, depth) in self.matrices()) + (2 * self.layers + 1) * self.width


def random_llama(size: LlamaSize, seed: int = 0, weights: Weights = "float32") -> ModelProto:
    """Tokens, mask, positions and past keys and values to logits and all keys and values.

    weights: of products. float16: widened by the model. int8, int4: symmetric codes in blocks of 32, which
    have to divide widths.
    """
    stored = {tensor.name: tensor for tensor in drawn_tensors(size, seed, weights)}
    table = stored[TABLE]
    stored[HEAD] = GgufTensor(HEAD, table.shape, table.kind, table.data)
    settings = DecoderSettings(
        architecture="llama",
        layers=size.layers,
        width=size.width,
        inner=size.inner,
        heads=size.heads,
        groups=size.groups,
        depth=size.depth,
        epsilon=1e-5,
        base=10000.0,
        slower=1.0,
        paired=False,
    )
    out = NodeWriter()
    return DecoderGraph(settings, DecoderWeights(GgufFile(Path("drawn"), {}, stored), out), out).model()


def drawn_tensors(size: LlamaSize, seed: int, weights: Weights) -> Iterator[GgufTensor]:
    """Yield all tensors but the head, which is the table of words."""
    random = np.random.default_rng(seed)
    for name, shape in size.matrices():
        if KIND_OF[weights] in _FLOATS:
            yield _drawn_floats(random, name, shape, KIND_OF[weights])
        else:
            yield _drawn_codes(random, name, shape, KIND_OF[weights])
    for name in size.norms():
        gains = 1.0 + SPREAD * random.standard_normal(size.width, np.float32)
        yield _stored(name, (size.width,), "F32", gains.astype(np.float32))


def write_gguf(path: Path, size: LlamaSize, seed: int = 0, weights: Weights = "float32") -> None:
    """Write a GGUF file of these tensors, with words that mean nothing. Raises ImportError without `gguf`."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(size.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(size.width)
    writer.add_feed_forward_length(size.inner)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.groups)
    writer.add_rope_dimension_count(size.depth)
    writer.add_layer_norm_rms_eps(1e-5)
    special = (gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL)
    words = [f"w{number}" for number in range(size.words - len(special))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *words])
    writer.add_token_scores([-float(number) for number in range(size.words)])
    writer.add_token_types([*special, *[gguf.TokenType.NORMAL] * len(words)])
    writer.add_bos_token_id(1)
    for tensor in drawn_tensors(size, seed, weights):
        form = FORMATS[tensor.kind]
        kind = gguf.GGMLQuantizationType[form.name]
        rows = np.frombuffer(tensor.data, np.uint8).reshape(*tensor.shape[:-1], -1)
        floats = rows.view(_FLOATS[form.name]) if form.name in _FLOATS else rows
        writer.add_tensor(tensor.name, floats, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _drawn_floats(random: np.random.Generator, name: str, shape: Shape, kind: str) -> GgufTensor:
    drawn = np.float32(SPREAD) * random.standard_normal(shape, np.float32)
    return _stored(name, shape, kind, drawn.astype(_FLOATS[kind]))


def _drawn_codes(random: np.random.Generator, name: str, shape: Shape, kind: str) -> GgufTensor:
    form = FORMATS[_KINDS[kind]]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // form.block, form.size), np.uint8)
    scales = random.uniform(0.5, 1.5, (len(blocks), 1)) * SPREAD / _CODES_SPREAD
    scales /= 16 if kind == "Q8_0" else 1
    blocks[:, :2] = scales.astype("<f2").view(np.uint8)
    return _stored(name, shape, kind, blocks)


def _stored(name: str, shape: Shape, kind: str, array: Array) -> GgufTensor:
    return GgufTensor(name, shape, _KINDS[kind], array.reshape(-1).view(np.uint8).data)


def main(words: Sequence[str]) -> int:
    """Write one model."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m scripts.random_llama", None, __doc__, formatter_class=layout)
    parser.add_argument("file", type=Path, metavar="FILE")
    sizes = LlamaSize()
    for name in ("layers", "width", "heads", "groups", "inner", "words"):
        shown = f"{getattr(sizes, name)}"
        parser.add_argument(f"--{name}", type=int, default=getattr(sizes, name), metavar="N", help=shown)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the weights (0)")
    parser.add_argument("--weights", choices=tuple(KIND_OF), default="float32", help="(float32)")
    options = vars(parser.parse_args(words))
    path, seed, weights = (options.pop(name) for name in ("file", "seed", "weights"))
    size, block = LlamaSize(**options), FORMATS[_KINDS["Q4_0"]].block
    if KIND_OF[weights] not in _FLOATS and (size.width % block or size.inner % block):
        parser.error(f"--width and --inner have to be multiples of {block} with --weights {weights}")
    if path.suffix == ".gguf":
        write_gguf(path, size, seed, weights)
    else:
        onnx.save(random_llama(size, seed, weights), path)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
