"""Rules about the CUDA allocator: its cache, its configuration, what a handler of its errors does."""
