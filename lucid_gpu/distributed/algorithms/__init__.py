"""Ways to train on several ranks: uneven inputs, and what travels instead of gradients."""
