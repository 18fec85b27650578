"""The places of a row are the module's constants `USE_...`."""
