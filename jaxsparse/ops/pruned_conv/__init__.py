"""`pruned_conv`: a convolution with a frozen, pruned kernel."""
