"""A text detector read from ONNX, on a screen that changes a little."""
