"""`masked_conv`: a convolution where a mask of the output holds."""
