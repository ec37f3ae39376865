"""Rules about tensors that stay on the device though the host, or less of them, would do."""
