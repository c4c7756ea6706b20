"""Fine-tuned small models: their folders, networks and training rows. Roles use them, `gnnrag.fit` trains them."""
