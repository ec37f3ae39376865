"""What touches the disk, and knows nothing of torch: opening, writing and naming files, and the data in them."""
