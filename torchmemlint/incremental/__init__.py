"""What earlier runs learned, and what of it still holds after an edit."""
