"""Sixty models from their configurations, without weights: each entry makes a model and a batch, and says how a step runs it.

Sizes are small enough for two cores. ``timm``, ``transformers``, ``diffusers``, ``peft`` and ``bitsandbytes`` are needed; imports are inside,
so that a list of names needs none of them.
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
    """``make`` gives a model and the arguments of its forward; ``train`` whether a step trains or generates; ``autocast`` whether it runs
    in bfloat16; ``optimizer`` makes that of its parameters."""

    name: str
    kind: str
    make: Callable[[], Made]
    train: bool = True
    autocast: bool = False
    optimizer: Callable[[Any], Any] = lambda parameters: torch.optim.AdamW(parameters, lr=1e-4)


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
_PICTURE, _BEGIN = 1500, 1502
_SEEING: dict[str, Callable[[], torch.Tensor]] = {
    "input_ids": lambda: torch.tensor([[_BEGIN, *[_PICTURE] * 16, *range(47)]] * 2), "labels": lambda: _ids(2, 64),
}  # fmt: skip
"""A text in which 16 places are those of a picture. Its numbers are written out: models look for these places."""
_GRIDS: dict[str, Callable[[], torch.Tensor]] = {
    "pixel_values": lambda: torch.randn(128, 1536), "image_grid_thw": lambda: torch.tensor([[1, 8, 8]] * 2),
    "mm_token_type_ids": lambda: torch.tensor([[0, *[1] * 16, *[0] * 47]] * 2),
}  # fmt: skip
_OBJECTS: dict[str, Callable[[], Any]] = {
    "pixel_values": lambda: torch.randn(2, 3, 128, 128),
    "labels": lambda: [{"class_labels": torch.tensor([1, 2]), "boxes": torch.rand(2, 4) * 0.3 + 0.2} for _ in range(2)],
}
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


def _eight_bit(parameters: Any) -> Any:
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-4)


def _masks() -> Made:
    """Mask2Former on Swin, which matches its queries with the masks that it is given."""
    import transformers

    backbone = transformers.SwinConfig(
        image_size=128,
        embed_dim=32,
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 4, 8],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.Mask2FormerConfig(
        feature_size=64,
        mask_feature_size=64,
        hidden_dim=64,
        encoder_feedforward_dim=128,
        dim_feedforward=128,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=4,
        num_queries=20,
        num_labels=10,
        train_num_points=256,
        backbone_config=backbone,
    )
    labels = {
        "mask_labels": [torch.randint(0, 2, (3, 128, 128)).float() for _ in range(2)],
        "class_labels": [torch.tensor([1, 2, 3]) for _ in range(2)],
    }
    return transformers.Mask2FormerForUniversalSegmentation(config), {"pixel_values": torch.randn(2, 3, 128, 128), **labels}


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
    Entry("transformers DeepSeek V3", "mixture of experts", _transformers(
        "DeepseekV3Config", "DeepseekV3ForCausalLM", _LANGUAGE, **{**_NEW, "head_dim": 16, "num_key_value_heads": 4}, moe_intermediate_size=64, n_routed_experts=8, num_experts_per_tok=2,
        n_group=2, topk_group=1, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, first_k_dense_replace=1,
    )),
    Entry("transformers Qwen3 Next", "recurrence", _transformers(
        "Qwen3NextConfig", "Qwen3NextForCausalLM", _LANGUAGE, **{**_NEW, "num_hidden_layers": 4}, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32,
        linear_value_head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
    )),
    Entry("transformers Falcon H1", "recurrence", _transformers("FalconH1Config", "FalconH1ForCausalLM", _LANGUAGE, **_NEW, mamba_d_ssm=128, mamba_n_heads=4, mamba_d_head=32, mamba_d_state=16, mamba_chunk_size=16)),
    Entry("transformers Qwen3 VL", "text and pictures", _transformers(
        "Qwen3VLConfig", "Qwen3VLForConditionalGeneration", {**_SEEING, **_GRIDS}, image_token_id=_PICTURE, video_token_id=1501, vision_start_token_id=_BEGIN, vision_end_token_id=1503,
        text_config={**_NEW, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6]}},
        vision_config={"depth": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "out_hidden_size": 128, "deepstack_visual_indexes": [0]},
    )),
    Entry("transformers SmolVLM", "text and pictures", _transformers(
        "SmolVLMConfig", "SmolVLMForConditionalGeneration", {**_SEEING, "pixel_values": lambda: torch.randn(2, 1, 3, 64, 64)}, image_token_id=_PICTURE, scale_factor=2, pad_token_id=0,
        text_config={"model_type": "llama", **_NEW}, vision_config={**_VISION, "image_size": 64, "patch_size": 8},
    )),
    Entry("transformers Whisper", "sound", _transformers(
        "WhisperConfig", "WhisperForConditionalGeneration", {"input_features": lambda: torch.randn(2, 80, 3000), "labels": lambda: _ids(2, 32)}, vocab_size=2000, d_model=128, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )),
    Entry("transformers wav2vec 2", "sound", _transformers(
        "Wav2Vec2Config", "Wav2Vec2ForCTC", {"input_values": lambda: torch.randn(2, 16000), "labels": lambda: torch.tensor([[*range(1, 13)]] * 2)}, vocab_size=32, hidden_size=128,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=512, conv_dim=(64,) * 7,
    )),
    Entry("transformers YOLOS", "objects", _transformers("YolosConfig", "YolosForObjectDetection", _OBJECTS, **_VISION, image_size=[128, 128], num_detection_tokens=20, num_labels=10)),
    Entry("transformers Mask2Former", "objects", _masks),
    Entry("diffusers Flux", "attention", _diffusers(
        "FluxTransformer2DModel",
        {
            "hidden_states": lambda: torch.randn(2, 64, 16), "encoder_hidden_states": lambda: torch.randn(2, 16, 64), "pooled_projections": lambda: torch.randn(2, 32),
            "timestep": lambda: torch.tensor([0.1, 0.2]), "img_ids": lambda: torch.zeros(64, 3), "txt_ids": lambda: torch.zeros(16, 3),
        },
        in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=32, num_attention_heads=4, joint_attention_dim=64, pooled_projection_dim=32, axes_dims_rope=(8, 12, 12),
    )),
    Entry("diffusers Wan", "attention", _diffusers(
        "WanTransformer3DModel", {"hidden_states": lambda: torch.randn(1, 4, 5, 16, 16), "timestep": lambda: torch.tensor([1]), "encoder_hidden_states": lambda: torch.randn(1, 8, 64)},
        num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=4, text_dim=64, freq_dim=32, ffn_dim=256, num_layers=2,
    )),
    Entry("transformers Qwen3, bfloat16 autocast", "attention", _transformers("Qwen3Config", "Qwen3ForCausalLM", _LANGUAGE, **_NEW), autocast=True),
    Entry("transformers Qwen3, 8-bit AdamW", "attention", _transformers("Qwen3Config", "Qwen3ForCausalLM", _LANGUAGE, **_NEW), optimizer=_eight_bit),
    Entry("transformers Llama, generation", "attention", _transformers("LlamaConfig", "LlamaForCausalLM", _TEXT, **_LLAMA), train=False),
    Entry("transformers GPT-2, generation", "attention", _transformers("GPT2Config", "GPT2LMHeadModel", _TEXT, vocab_size=2000, n_embd=128, n_layer=3, n_head=4), train=False),
    Entry("transformers Mamba, generation", "recurrence", _transformers("MambaConfig", "MambaForCausalLM", _TEXT, vocab_size=2000, hidden_size=128, num_hidden_layers=2), train=False),
)  # fmt: skip
