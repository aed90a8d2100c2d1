"""The backend of CUDA kernels written in Numba."""
