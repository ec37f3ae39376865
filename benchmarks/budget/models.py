"""Fifty models from their configurations, without weights: each entry makes a model and a batch, and says how a step runs it.

Sizes are small enough for two cores. ``timm``, ``transformers`` and ``diffusers`` are needed; imports are inside, so that a list of
names needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Made = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Entry:
    """``make`` gives a model and the arguments of its forward; ``train`` whether a step trains or generates."""

    name: str
    kind: str
    make: Callable[[], Made]
    train: bool = True


def _ids(*shape: int, high: int = 500) -> torch.Tensor:
    return torch.randint(0, high, shape)


# -- torch.nn


class _Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, 128)
        self.run = getattr(nn, kind)(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 500)

    def forward(self, ids: torch.Tensor) -> Any:
        """Logits for each position."""
        return self.head(self.run(self.embed(ids))[0])


class _Volumes(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(16, 32, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip


def _of_torch(name: str) -> Callable[[], Made]:
    def make() -> Made:
        if name == "mlp":
            return nn.Sequential(nn.Linear(784, 2048), nn.GELU(), nn.Dropout(0.1), nn.Linear(2048, 10)), {
                "input": torch.randn(256, 784)
            }
        if name == "encoder":
            layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
            return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), {"src": torch.randn(8, 128, 128)}
        if name == "transformer":
            model = nn.Transformer(128, 4, 2, 2, 512, batch_first=True)
            return model, {"src": torch.randn(8, 64, 128), "tgt": torch.randn(8, 64, 128)}
        if name == "conv3d":
            return _Volumes(), {"input": torch.randn(4, 1, 16, 48, 48)}
        return _Recurrent(name.upper()), {"ids": _ids(16, 64)}

    return make


# -- libraries


def _timm(name: str, side: int = 224, batch: int = 2, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        import timm

        return timm.create_model(name, pretrained=False, **options), {"x": torch.randn(batch, 3, side, side)}

    return make


def _transformers(config: str, model: str, batch: dict[str, Callable[[], torch.Tensor]], **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made, {name: give() for name, give in batch.items()}

    return make


def _diffusers(model: str, batch: dict[str, Callable[[], Any]], **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        import diffusers

        return getattr(diffusers, model)(**options), {name: give() for name, give in batch.items()}

    return make


_TEXT: dict[str, Callable[[], torch.Tensor]] = {"input_ids": lambda: _ids(4, 64)}
_LANGUAGE: dict[str, Callable[[], torch.Tensor]] = {"input_ids": lambda: _ids(4, 64), "labels": lambda: _ids(4, 64)}
_BERT = {"vocab_size": 2000, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512}
_LLAMA = {**_BERT, "num_key_value_heads": 2}
_NEW = {**_LLAMA, "head_dim": 32, "pad_token_id": 0}
_PICTURES: dict[str, Callable[[], torch.Tensor]] = {"pixel_values": lambda: torch.randn(2, 3, 224, 224)}
_VISION = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512}


def _adapted(checkpointed: bool = False) -> Callable[[], Made]:
    """Llama with adapters of low rank, or with its blocks checkpointed."""

    def make() -> Made:
        model, batch = _transformers("LlamaConfig", "LlamaForCausalLM", _LANGUAGE, **_LLAMA)()
        if checkpointed:
            model.gradient_checkpointing_enable()
            return model, batch
        import peft

        return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"])), batch

    return make


_UNET = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 16}

ENTRIES = (
    Entry("torch.nn MLP", "linear", _of_torch("mlp")),
    Entry("torch.nn RNN", "recurrence", _of_torch("rnn")),
    Entry("torch.nn GRU", "recurrence", _of_torch("gru")),
    Entry("torch.nn LSTM", "recurrence", _of_torch("lstm")),
    Entry("torch.nn TransformerEncoder", "attention", _of_torch("encoder")),
    Entry("torch.nn Transformer", "attention", _of_torch("transformer")),
    Entry("torch.nn Conv3d", "convolution", _of_torch("conv3d")),
    Entry("timm resnet18", "convolution", _timm("resnet18")),
    Entry("timm mobilenetv3_small_100", "convolution", _timm("mobilenetv3_small_100")),
    Entry("timm efficientnet_b0", "convolution", _timm("efficientnet_b0")),
    Entry("timm convnext_atto", "convolution", _timm("convnext_atto")),
    Entry("timm regnety_002", "convolution", _timm("regnety_002")),
    Entry("timm densenet121", "convolution", _timm("densenet121")),
    Entry("timm vit_tiny_patch16_224", "attention", _timm("vit_tiny_patch16_224")),
    Entry("timm swin_tiny_patch4_window7_224", "attention", _timm("swin_tiny_patch4_window7_224")),
    Entry("timm mixer_s32_224", "linear", _timm("mixer_s32_224")),
    Entry("transformers BERT", "attention", _transformers("BertConfig", "BertForMaskedLM", _LANGUAGE, **_BERT)),
    Entry(
        "transformers DistilBERT", "attention",
        _transformers("DistilBertConfig", "DistilBertModel", _TEXT, vocab_size=2000, dim=128, n_layers=3, n_heads=4, hidden_dim=512),
    ),
    Entry("transformers GPT-2", "attention", _transformers("GPT2Config", "GPT2LMHeadModel", _LANGUAGE, vocab_size=2000, n_embd=128, n_layer=3, n_head=4)),
    Entry("transformers Llama", "attention", _transformers("LlamaConfig", "LlamaForCausalLM", _LANGUAGE, **_LLAMA)),
    Entry(
        "transformers T5", "attention",
        _transformers("T5Config", "T5ForConditionalGeneration", _LANGUAGE, vocab_size=2000, d_model=128, d_kv=32, d_ff=512, num_layers=3, num_heads=4, decoder_start_token_id=0),
    ),
    Entry("transformers ViT", "attention", _transformers("ViTConfig", "ViTModel", {"pixel_values": lambda: torch.randn(2, 3, 224, 224)}, **{**_BERT, "vocab_size": None})),
    Entry(
        "transformers Mixtral", "mixture of experts",
        _transformers("MixtralConfig", "MixtralForCausalLM", _LANGUAGE, **_LLAMA, num_local_experts=4),
    ),
    Entry("transformers Mamba", "recurrence", _transformers("MambaConfig", "MambaForCausalLM", _LANGUAGE, vocab_size=2000, hidden_size=128, num_hidden_layers=2)),
    Entry("diffusers UNet2DModel", "convolution", _diffusers(
        "UNet2DModel", {"sample": lambda: torch.randn(2, 3, 32, 32), "timestep": lambda: torch.tensor([1, 2])}, sample_size=32,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), **_UNET,
    )),
    Entry("diffusers UNet2DConditionModel", "convolution", _diffusers(
        "UNet2DConditionModel",
        {"sample": lambda: torch.randn(2, 4, 32, 32), "timestep": lambda: torch.tensor([1, 2]), "encoder_hidden_states": lambda: torch.randn(2, 8, 64)},
        sample_size=32, cross_attention_dim=64, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **_UNET,
    )),
    Entry("diffusers AutoencoderKL", "convolution", _diffusers("AutoencoderKL", {"sample": lambda: torch.randn(2, 3, 64, 64)}, norm_num_groups=16, block_out_channels=(32,))),
    # models of 2024 to 2026, and ways to train them
    Entry("transformers Qwen2", "attention", _transformers("Qwen2Config", "Qwen2ForCausalLM", _LANGUAGE, **_LLAMA)),
    Entry("transformers Qwen3", "attention", _transformers("Qwen3Config", "Qwen3ForCausalLM", _LANGUAGE, **_NEW)),
    Entry("transformers Qwen3 MoE", "mixture of experts", _transformers("Qwen3MoeConfig", "Qwen3MoeForCausalLM", _LANGUAGE, **_NEW, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128)),
    Entry("transformers Gemma 2", "attention", _transformers("Gemma2Config", "Gemma2ForCausalLM", _LANGUAGE, **_NEW)),
    Entry("transformers Gemma 3", "attention", _transformers("Gemma3TextConfig", "Gemma3ForCausalLM", _LANGUAGE, **_NEW)),
    Entry("transformers Phi-3", "attention", _transformers("Phi3Config", "Phi3ForCausalLM", _LANGUAGE, **_LLAMA, pad_token_id=0)),
    Entry("transformers Mistral", "attention", _transformers("MistralConfig", "MistralForCausalLM", _LANGUAGE, **_LLAMA)),
    Entry("transformers OLMo 2", "attention", _transformers("Olmo2Config", "Olmo2ForCausalLM", _LANGUAGE, **_LLAMA, pad_token_id=0)),
    Entry("transformers GPT-OSS", "mixture of experts", _transformers("GptOssConfig", "GptOssForCausalLM", _LANGUAGE, **_NEW, num_local_experts=4)),
    Entry("transformers SmolLM 3", "attention", _transformers("SmolLM3Config", "SmolLM3ForCausalLM", _LANGUAGE, **_LLAMA, pad_token_id=0)),
    Entry("transformers Granite", "attention", _transformers("GraniteConfig", "GraniteForCausalLM", _LANGUAGE, **_LLAMA)),
    Entry("transformers Cohere 2", "attention", _transformers("Cohere2Config", "Cohere2ForCausalLM", _LANGUAGE, **_LLAMA, pad_token_id=0)),
    Entry("transformers Mamba 2", "recurrence", _transformers("Mamba2Config", "Mamba2ForCausalLM", _LANGUAGE, vocab_size=2000, hidden_size=128, num_hidden_layers=2, num_heads=8, head_dim=32, state_size=16, n_groups=1, chunk_size=16)),
    Entry("transformers ModernBERT", "attention", _transformers("ModernBertConfig", "ModernBertForMaskedLM", _LANGUAGE, **_BERT, pad_token_id=0)),
    Entry("transformers DINOv2", "attention", _transformers("Dinov2Config", "Dinov2Model", _PICTURES, image_size=224, hidden_size=128, num_hidden_layers=3, num_attention_heads=4)),
    Entry("transformers SigLIP", "attention", _transformers("SiglipVisionConfig", "SiglipVisionModel", _PICTURES, **_VISION)),
    Entry("diffusers SD3", "attention", _diffusers(
        "SD3Transformer2DModel",
        {"hidden_states": lambda: torch.randn(2, 4, 32, 32), "timestep": lambda: torch.tensor([1, 2]), "encoder_hidden_states": lambda: torch.randn(2, 8, 64), "pooled_projections": lambda: torch.randn(2, 32)},
        sample_size=32, in_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=64, caption_projection_dim=64, pooled_projection_dim=32, out_channels=4,
    )),
    Entry("diffusers DiT", "attention", _diffusers(
        "DiTTransformer2DModel", {"hidden_states": lambda: torch.randn(2, 4, 32, 32), "timestep": lambda: torch.tensor([1, 2]), "class_labels": lambda: torch.tensor([1, 2])},
        num_attention_heads=4, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=32,
    )),
    Entry("peft LoRA of Llama", "attention", _adapted()),
    Entry("transformers Llama, checkpointed", "attention", _adapted(checkpointed=True)),
    Entry("transformers Llama, generation", "attention", _transformers("LlamaConfig", "LlamaForCausalLM", _TEXT, **_LLAMA), train=False),
    Entry("transformers GPT-2, generation", "attention", _transformers("GPT2Config", "GPT2LMHeadModel", _TEXT, vocab_size=2000, n_embd=128, n_layer=3, n_head=4), train=False),
    Entry("transformers Mamba, generation", "recurrence", _transformers("MambaConfig", "MambaForCausalLM", _TEXT, vocab_size=2000, hidden_size=128, num_hidden_layers=2), train=False),
)  # fmt: skip
