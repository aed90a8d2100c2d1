"""The parts of `bench/gpu_check.py`."""
