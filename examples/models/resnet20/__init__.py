"""The ResNet-20 of `gated_resnet`, trained on cluttered canvases, in float32 and fake-quantised."""
