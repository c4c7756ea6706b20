"""A random encoder of two layers with a word-piece tokenizer of its own, made on the spot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path


def make_tiny_encoder(folder: Path, texts: Iterable[str], seed: int = 0, width: int = 32, layers: int = 2) -> Path:
    """Write a random BERT, and a tokenizer that knows the words of some texts; about 0.1 s once torch is imported.

    `WordPieceTrainer` numbers its pieces differently in each process; the vocabulary is made here, so that the same
    weights mean the same vectors every time.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    letters = sorted({letter for word in words for letter in word})
    common = [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1]
    pieces = [*special, *letters, *("##" + letter for letter in letters), *common][:400]
    raw = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizer, splitter
    raw.decoder = decoders.WordPiece()
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
