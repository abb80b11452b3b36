"""The CUDA handlers and the host code of the kernels, on a machine without a GPU: they are linked
with a substitute for NVIDIA's runtime, which does the same checks and launches nothing (`driver/`).
"""
