"""Export models from PyTorch, torchvision and Hugging Face's transformers, as users do.

    pip install -e '.[exports]'
    python -m scripts.exports FOLDER [NAME ...]

Writes FOLDER/NAME.onnx and NAME.inputs.npz, samples as "K|INPUT", for each model and each of both exporters:
TorchScript's (`NAME`) and the newer one (`NAME_dynamo`). Weights are drawn with a fixed seed; statistics of
normalization are those of a few drawn batches, so that values are as in a trained model. What an exporter
refuses is told, and is no failure of this script.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
import transformers
from torch import Tensor, nn

SAMPLES = 4
Feeds = dict[str, Tensor]


@dataclass(frozen=True)
class Source:
    """A model, its inputs, and the axes of these that stay open, by input.

    named: inputs that are parameters of their own of `forward`, before those that it takes as a list; None
    for all.
    """

    module: nn.Module
    draw: Callable[[int], Feeds]
    open_axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    outputs: Sequence[str] = ("output",)
    named: int | None = None


def image(size: int, channels: int = 3) -> Callable[[int], Feeds]:
    """Smooth drawn pictures [1, channels, size, size], standardized as photographs are."""

    def draw(seed: int) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        coarse = torch.randn(1, channels, 8, 8, generator=random)
        fine = 0.3 * torch.randn(1, channels, size, size, generator=random)
        return {"x": nn.functional.interpolate(coarse, (size, size), mode="bicubic") + fine}

    return draw


def settled(module: nn.Module, draw: Callable[[int], Feeds]) -> nn.Module:
    """The module with running statistics of a few drawn batches, ready to be exported."""
    module.train()
    with torch.no_grad():
        for seed in range(20, 28):
            batches = [draw(100 * seed + place) for place in range(4)]
            module(*(torch.cat([batch[name] for batch in batches]) for name in batches[0]))
    return module.eval()


def vision(build: Callable[..., nn.Module], size: int = 96, **arguments: Any) -> Callable[[], Source]:
    """A classifier of torchvision, with an open batch."""

    def make() -> Source:
        draw = image(size)
        module = settled(build(weights=None, num_classes=20, **arguments), draw)
        return Source(module, draw, {"x": {0: "batch"}})

    return make


class Recurrent(nn.Module):
    """A classifier of sequences of tokens by an LSTM or GRU in both directions."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 24)
        self.cell = cell(24, 32, batch_first=True, bidirectional=True, num_layers=2)
        self.head = nn.Linear(64, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the last step."""
        return self.head(self.cell(self.table(tokens))[0][:, -1])


class Volumes(nn.Module):
    """A classifier of volumes by 3-D convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(8, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.AdaptiveAvgPool3d(1)),
            *(nn.Flatten(), nn.Linear(16, 4)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        return self.body(x)


class UNet(nn.Module):
    """An encoder and decoder with skips, upsampled by transposed convolutions and by interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = _twice(3, 16), _twice(16, 32), _twice(32, 64)
        self.up = nn.ConvTranspose2d(64, 32, 2, 2)
        self.fourth, self.fifth, self.last = _twice(64, 32), _twice(48, 16), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of two classes for each pixel."""
        a = self.first(x)
        b = self.second(nn.functional.max_pool2d(a, 2))
        c = self.third(nn.functional.max_pool2d(b, 2))
        b = self.fourth(torch.cat([self.up(c), b], 1))
        b = nn.functional.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)
        return self.last(self.fifth(torch.cat([b, a], 1)))


def _twice(before: int, after: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class Bytes(nn.Module):
    """A classifier of pictures of bytes, which it resizes and standardizes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = settled(torchvision.models.squeezenet1_1(weights=None, num_classes=10), image(64))
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes for pictures [N, height, width, 3]."""
        planes = x.permute(0, 3, 1, 2).float() / 255
        small = nn.functional.interpolate(planes, size=(64, 64), mode="bilinear", align_corners=False)
        return self.body((small - self.mean) / self.std)


class Detector(nn.Module):
    """A detector of one stage with heads at two strides, as SSD is, down to its results.

    Anchors, decoded boxes, a threshold of scores, then non-maximum suppression of each class by itself: as
    many results as data has.
    """

    def __init__(self, size: int, classes: int = 3) -> None:
        super().__init__()
        self.size = size
        self.stem = nn.Sequential(_twice(3, 16), nn.MaxPool2d(2), _twice(16, 32), nn.MaxPool2d(2))
        self.deep = nn.Sequential(_twice(32, 48), nn.MaxPool2d(2), _twice(48, 48))
        self.places = nn.ModuleList(nn.Conv2d(width, 4, 3, padding=1) for width in (32, 48))
        self.classes = nn.ModuleList(nn.Conv2d(width, classes + 1, 3, padding=1) for width in (32, 48))
        self.register_buffer("anchors", torch.cat([_anchors(size, stride) for stride in (4, 8)]))
        for head in self.classes:
            nn.init.normal_(head.weight, std=0.2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes [n, 4], scores [n] and classes [n] of the objects of one picture."""
        near = self.stem(x)
        levels = near, self.deep(near)
        offsets, logits = (_heads(heads, levels) for heads in (self.places, self.classes))
        centres = self.anchors[:, :2] + 0.1 * offsets[:, :2] * self.anchors[:, 2:]
        sizes = self.anchors[:, 2:] * (0.2 * offsets[:, 2:]).exp()
        boxes = torch.cat([centres - 0.5 * sizes, centres + 0.5 * sizes], 1)
        scores, classes = logits.softmax(1)[:, 1:].max(1)
        likely = torch.nonzero(scores > 0.4).squeeze(1)
        boxes, scores, classes = boxes[likely], scores[likely], classes[likely]
        apart = boxes + 2 * self.size * classes[:, None]  # boxes of two classes do not meet
        kept = torchvision.ops.nms(apart, scores, 0.45)
        return boxes[kept], scores[kept], classes[kept]


def _anchors(size: int, stride: int) -> Tensor:
    """Centres and sizes [n, 4] of one square for each place of a level, in pixels."""
    steps = torch.arange(0.5 * stride, size, stride)
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    centres = torch.stack([right, down], 2).flatten(0, 1)
    return torch.cat([centres, torch.full_like(centres, 3.0 * stride)], 1)


def _heads(heads: nn.ModuleList, levels: Sequence[Tensor]) -> Tensor:
    """Results [n, values] of the first picture for all places of all levels."""
    rows = [head(level)[0].flatten(1).T for head, level in zip(heads, levels, strict=True)]
    return torch.cat(rows)


class Suppressed(nn.Module):
    """A detector of torchvision on one picture, by its result for it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes [n, 4], scores [n] and labels [n]."""
        found = self.model(list(x))[0]
        return found["boxes"], found["scores"], found["labels"]


class HalfModel(nn.Module):
    """A network in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = settled(torchvision.models.resnet18(weights=None, num_classes=10), image(64)).half()

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        return self.body(x)


class Named(nn.Module):
    """A model of transformers whose result is one tensor, by its field; inputs are given by place."""

    def __init__(self, model: Any, names: Sequence[str], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, list(names), result

    def forward(self, *inputs: Tensor) -> Tensor:
        """The field of the result."""
        return getattr(
            self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True), self.result
        )


def tokens(names: Sequence[str], words: int, length: int = 12) -> Callable[[int], Feeds]:
    """Drawn tokens, and ones for what is no tokens."""

    def draw(seed: int) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, words, (1, length), generator=random)
        return {name: ids if "input_ids" in name else torch.ones_like(ids) for name in names}

    return draw


def text(
    build: Callable[[], Any], result: str, names: Sequence[str] = ("input_ids", "attention_mask")
) -> Any:
    """A model over tokens, with an open batch and length."""

    def make() -> Source:
        axes = {name: {0: "batch", 1: "length"} for name in names}
        return Source(Named(build().eval(), names, result), tokens(names, 90), axes, named=0)

    return make


def _half() -> Source:
    def draw(seed: int) -> Feeds:
        return {"x": image(64)(seed)["x"].half()}

    return Source(HalfModel(), draw, {"x": {0: "batch"}})


def _bytes() -> Source:
    def draw(seed: int) -> Feeds:
        pixels = image(80)(seed)["x"].permute(0, 2, 3, 1) * 50 + 120
        return {"x": pixels.clamp(0, 255).to(torch.uint8)}

    return Source(Bytes().eval(), draw, {"x": {0: "batch"}})


def _recurrent(cell: type[nn.Module]) -> Callable[[], Source]:
    return lambda: Source(
        Recurrent(cell).eval(),
        lambda seed: {"x": tokens(["input_ids"], 50, 10)(seed)["input_ids"]},
        {"x": {0: "batch"}},
    )


def _whisper_config() -> Any:
    return transformers.WhisperConfig(
        vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16,
        max_source_positions=50, max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip


def _whisper_encoder() -> Source:
    encoder = transformers.WhisperModel(_whisper_config()).eval().encoder
    draw = lambda seed: {  # noqa: E731
        "input_features": torch.randn(1, 16, 100, generator=torch.Generator().manual_seed(seed))
    }
    return Source(
        Named(encoder, ["input_features"], "last_hidden_state"),
        draw,
        {"input_features": {0: "batch"}},
        named=0,
    )


def _whisper_decoder() -> Source:
    decoder = transformers.WhisperModel(_whisper_config()).eval().decoder
    names = ["input_ids", "encoder_hidden_states"]

    def draw(seed: int) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        return {
            "input_ids": torch.randint(3, 90, (1, 8), generator=random),
            "encoder_hidden_states": torch.randn(1, 50, 32, generator=random),
        }

    axes = {"input_ids": {0: "batch", 1: "length"}, "encoder_hidden_states": {0: "batch"}}
    return Source(Named(decoder, names, "last_hidden_state"), draw, axes, named=0)


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _bert() -> Any:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=100, max_position_embeddings=64, **_SMALL)
    )


def _distilbert() -> Any:
    return transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=100, max_position_embeddings=64, dim=32, n_layers=2, n_heads=4, hidden_dim=64
        )
    )


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False
        )
    )


def _llama() -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=100, max_position_embeddings=64, num_key_value_heads=2, use_cache=False, **_SMALL
        )
    )


def small(family: str, head: str, **settings: Any) -> Callable[[], Any]:
    """A model of a family of transformers, as "Phi3", with drawn weights and a head, as "ForCausalLM"."""

    def make() -> Any:
        config = getattr(transformers, f"{family}Config")
        return getattr(transformers, family + head)(config(vocab_size=100, pad_token_id=0, **settings))

    return make


def _vit() -> Source:
    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **_SMALL)
    ).eval()
    draw = lambda seed: {"pixel_values": image(32)(seed)["x"]}  # noqa: E731
    return Source(Named(model, ["pixel_values"], "logits"), draw, {"pixel_values": {0: "batch"}}, named=0)


class Cached(nn.Module):
    """A causal language model whose keys and values of past tokens are inputs and outputs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, positions: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Scores of next tokens, then keys and values of all tokens, layer by layer."""
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        layers = result.past_key_values.layers
        return result.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values))


def cached(build: Callable[[], Any], heads: int) -> Callable[[], Source]:
    """A decoder of two layers with its cache, whose lengths are open."""
    places = [f"{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    states = [f"past_key_values.{place}" for place in places]

    def draw(seed: int) -> Feeds:
        random, past, new = torch.Generator().manual_seed(seed), 5, 3
        return {
            "input_ids": torch.randint(3, 90, (1, new), generator=random),
            "attention_mask": torch.ones(1, past + new, dtype=torch.int64),
            "position_ids": torch.arange(past, past + new)[None],
            **{name: torch.randn(1, heads, past, 8, generator=random) for name in states},
        }

    axes = {
        "input_ids": {0: "batch", 1: "new"},
        "attention_mask": {0: "batch", 1: "total"},
        "position_ids": {0: "batch", 1: "new"},
        **{name: {0: "batch", 2: "past"} for name in states},
    }
    outputs = ("logits", *(f"present.{place}" for place in places))
    return lambda: Source(Cached(build().eval()), draw, axes, outputs, named=3)


def _small_vit(weights: None, num_classes: int) -> nn.Module:
    model = torchvision.models.VisionTransformer(
        image_size=96, patch_size=16, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128,
        num_classes=num_classes,
    )  # fmt: skip
    nn.init.normal_(model.heads.head.weight, std=0.1)  # zeros otherwise
    return model


def _ssdlite() -> Source:
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5, score_thresh=0.5, detections_per_img=50
    )
    settled(model.backbone, image(320))
    for layer in model.head.classification_head.modules():
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            nn.init.normal_(layer.weight, std=0.15)
    return Source(Suppressed(model.eval()), image(320), {}, ("boxes", "scores", "labels"))


MODELS: dict[str, Callable[[], Source]] = {
    "resnet18": vision(torchvision.models.resnet18),
    "mobilenet_v3": vision(torchvision.models.mobilenet_v3_small),
    "efficientnet_b0": vision(torchvision.models.efficientnet_b0),
    "convnext_tiny": vision(torchvision.models.convnext_tiny),
    "swin_t": vision(torchvision.models.swin_t),
    "vit": vision(_small_vit),
    "unet": lambda: Source(
        settled(UNet(), image(64)), image(64), {"x": {0: "batch", 2: "height", 3: "width"}}
    ),
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "conv3d": lambda: Source(
        Volumes().eval(),
        lambda seed: {"x": torch.randn(1, 1, 8, 16, 16, generator=torch.Generator().manual_seed(seed))},
        {"x": {0: "batch"}},
    ),
    "detector": lambda: Source(
        settled(Detector(64), image(64)), image(64), {}, ("boxes", "scores", "classes")
    ),
    "ssdlite": _ssdlite,
    "float16": _half,
    "uint8": _bytes,
    "hf_bert": text(_bert, "logits"),
    "hf_distilbert": text(_distilbert, "logits"),
    "hf_gpt2": text(_gpt2, "logits"),
    "hf_llama": text(_llama, "logits"),
    "hf_gpt2_cached": cached(_gpt2, 4),
    "hf_llama_cached": cached(_llama, 2),
    "hf_gptj_cached": cached(
        small("GPTJ", "ForCausalLM", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4), 4
    ),
    "hf_gptneo_cached": cached(
        small(
            "GPTNeo",
            "ForCausalLM",
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            window_size=8,
            attention_types=[[["global", "local"], 1]],
            max_position_embeddings=64,
        ),
        4,
    ),
    "hf_mpt_cached": cached(
        small("Mpt", "ForCausalLM", d_model=32, n_layers=2, n_heads=4, max_seq_len=64, expansion_ratio=2), 4
    ),
    "hf_phi3_cached": cached(small("Phi3", "ForCausalLM", num_key_value_heads=2, **_SMALL), 2),
    "hf_gemma2_cached": cached(
        small("Gemma2", "ForCausalLM", num_key_value_heads=2, head_dim=8, sliding_window=8, **_SMALL), 2
    ),
    "hf_deberta": text(
        small(
            "DebertaV2",
            "ForSequenceClassification",
            relative_attention=True,
            position_buckets=16,
            pos_att_type=["c2p", "p2c"],
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            **_SMALL,
        ),
        "logits",
    ),
    "hf_modernbert": text(
        small(
            "ModernBert",
            "ForSequenceClassification",
            local_attention=8,
            global_attn_every_n_layers=2,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
            **_SMALL,
        ),
        "logits",
    ),
    "hf_squeezebert": text(
        small("SqueezeBert", "ForSequenceClassification", embedding_size=32, **_SMALL), "logits"
    ),
    "hf_vit": _vit,
    "hf_whisper_encoder": _whisper_encoder,
    "hf_whisper_decoder": _whisper_decoder,
}


def export(source: Source, path: Path, dynamo: bool) -> None:
    """Write a model and its samples."""
    source.module.eval()
    feeds = [source.draw(seed) for seed in range(SAMPLES)]
    arguments = tuple(feeds[0].values())
    shared: dict[str, Any] = {"input_names": list(feeds[0]), "output_names": list(source.outputs)}
    if dynamo:
        shapes: tuple[Any, ...] = tuple(dict(source.open_axes.get(name, {})) for name in feeds[0])
        if source.named is not None:
            shapes = (*shapes[: source.named], shapes[source.named :])
        dynamic = {"dynamic_shapes": shapes} if source.open_axes else {}
        torch.onnx.export(
            source.module, arguments, str(path), dynamo=True, verbose=False, **dynamic, **shared
        )
    else:
        axes = {name: dict(axes) for name, axes in source.open_axes.items()}
        torch.onnx.export(
            source.module, arguments, str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **shared
        )
    arrays = {f"{k}|{name}": array.numpy() for k, feed in enumerate(feeds) for name, array in feed.items()}
    np.savez(path.with_suffix(".inputs.npz"), **arrays)


def main(words: Sequence[str]) -> int:
    """Export all models, or those that are named, into a folder."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], prog="python -m scripts.exports"
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MODELS)}; default all")
    options = parser.parse_args(words)
    folder, names = options.folder, options.names or list(MODELS)
    if unknown := sorted(set(names) - MODELS.keys()):
        parser.error(f"no model is called {', '.join(unknown)}")
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name in names:
        torch.manual_seed(0)
        source = MODELS[name]()
        for dynamo in (False, True):
            path = folder / f"{name}{'_dynamo' if dynamo else ''}.onnx"
            try:
                export(source, path, dynamo)
                print(f"{path}", flush=True)
            except Exception as error:  # exporters raise all kinds
                last = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
                print(f"{path}: not exported: {last[:200]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
