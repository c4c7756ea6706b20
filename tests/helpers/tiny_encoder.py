"""A random encoder of two layers with a word-piece tokenizer of its own, made on the spot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def make_tiny_encoder(folder: Path, texts: Iterable[str], seed: int = 0, width: int = 32, layers: int = 2) -> Path:
    """Write a random BERT and a tokenizer trained on some texts into `folder`; about 0.1 s once torch is imported."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    raw.train_from_iterator(texts, trainer)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, mask_token="[MASK]", **names)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2 * width, max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.1,
    )  # fmt: skip
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)
    return folder
