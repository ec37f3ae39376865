import torch
torch.ones(100 * (1 << 30), dtype=torch.uint8)
emit({"allocated": True})
