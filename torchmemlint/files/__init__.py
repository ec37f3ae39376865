"""What touches the disk, with no knowledge of torch: files opened, written, named."""
