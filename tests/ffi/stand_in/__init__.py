"""The CUDA handlers and the host code of the kernels, on a machine without a GPU: they are linked
with a runtime that checks what NVIDIA's checks, and launches nothing (`driver/`).
"""
