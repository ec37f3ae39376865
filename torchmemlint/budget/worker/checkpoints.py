"""Sizes of published checkpoints, without their files."""

from __future__ import annotations

from typing import Any

_BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
# https://huggingface.co/transformers/v3.3.1/pretrained_models.html, and the configurations of the checkpoints. What is not here is
# the default of the configuration's class, which its documentation says yields the base checkpoint.
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base-uncased": ("bert", {}), "bert-base-cased": ("bert", {"vocab_size": 28996}),
    "bert-base-chinese": ("bert", {"vocab_size": 21128}), "bert-base-multilingual-cased": ("bert", {"vocab_size": 119547}),
    "bert-base-multilingual-uncased": ("bert", {"vocab_size": 105879}), "bert-base-german-cased": ("bert", {"vocab_size": 30000}),
    "bert-large-uncased": ("bert", _BERT_LARGE), "bert-large-cased": ("bert", {**_BERT_LARGE, "vocab_size": 28996}),
    "bert-large-uncased-whole-word-masking": ("bert", _BERT_LARGE),
    "roberta-base": ("roberta", _ROBERTA), "roberta-large": ("roberta", {**_ROBERTA, **_BERT_LARGE}),
    "distilroberta-base": ("roberta", {**_ROBERTA, "num_hidden_layers": 6}),
    "xlm-roberta-base": ("xlm-roberta", {**_ROBERTA, "vocab_size": 250002}),
    "xlm-roberta-large": ("xlm-roberta", {**_ROBERTA, **_BERT_LARGE, "vocab_size": 250002}),
    "distilbert-base-uncased": ("distilbert", {}), "distilbert-base-cased": ("distilbert", {"vocab_size": 28996}),
    "distilbert-base-multilingual-cased": ("distilbert", {"vocab_size": 119547}),
    "gpt2": ("gpt2", {}), "distilgpt2": ("gpt2", {"n_layer": 6}),
    "gpt2-medium": ("gpt2", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": ("gpt2", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "gpt2-xl": ("gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "t5-small": ("t5", {}), "t5-base": ("t5", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    "t5-large": ("t5", {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}),
    "bart-large": ("bart", {}),
    "bart-base": ("bart", {
        "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12, "decoder_attention_heads": 12,
        "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
    }),
    "vit-base-patch16-224": ("vit", {}), "vit-base-patch16-224-in21k": ("vit", {}),
    "clip-vit-base-patch32": ("clip", {}),
}  # fmt: skip


def sizes_of(name: str, family: str) -> tuple[str, dict[str, Any]] | None:
    """The family of a checkpoint, and what differs from the default configuration; None where it is unknown, or of another family."""
    found = CHECKPOINTS.get(name.rsplit("/", 1)[-1].lower())
    return found if found is not None and family in ("", found[0]) else None
