"""What one step of a program needs on a CUDA device, found without one: the step runs on fake tensors, and the allocator is replayed."""
