"""Language models that are fine-tuned for a role, with LoRA or whole."""
