"""Training of learned parts, and the rows that they are trained on."""

# Script in training/: the kinds of model that it trains; the first one is that of a config that names none.
TRAININGS: dict[str, dict[str, str]] = {
    "train_gnn.py": {"gnn": "gnnrag.training.gnn:GNNTraining"},
    "train_verifier.py": {
        "cross_encoder": "gnnrag.training.verifier:VerifierTraining",
        "chain": "gnnrag.training.chain_verifier:ChainTraining",
        "causal": "gnnrag.training.language:VerifierLanguageTraining",
    },
    "train_thoughts.py": {
        "causal": "gnnrag.training.language:ThoughtsCausalTraining",
    },
    "train_reader.py": {
        "span": "gnnrag.training.reader:ReaderTraining",
        "causal": "gnnrag.training.language:ReaderLanguageTraining",
    },
    "train_encoder.py": {"encoder": "gnnrag.training.encoder:EncoderTraining"},
}
