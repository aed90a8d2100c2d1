"""The `numba` backend on GPUs: CUDA kernels written in Python."""
