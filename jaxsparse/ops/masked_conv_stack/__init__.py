"""`masked_conv_stack`: masked convolutions of one size, one after the other."""
