"""What one step of a program needs on a CUDA device, found on fake tensors without one.

``command`` → ``runs`` (a child for each run) → ``worker`` (records allocations) → ``allocator`` and ``account`` → ``report``. Next to
read: ``worker``.
"""
