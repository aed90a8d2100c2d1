"""The backend of compiled loops on the CPU."""
