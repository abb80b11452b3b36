"""`sparse_ffn`: a feed-forward network that skips the activations that are zero."""
