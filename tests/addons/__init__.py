"""That add-ons go with their files and one line."""
