"""`jaxsparse bench masked_conv`: masked against dense convolutions, and the floor."""
