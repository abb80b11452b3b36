"""`sparse_attention`: attention that skips the blocks of scores that a mask leaves out."""
