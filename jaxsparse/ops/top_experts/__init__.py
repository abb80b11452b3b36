"""`top_experts`: from a router's logits to each token's experts."""
