"""What those who mean harm do, and what bounds it."""
