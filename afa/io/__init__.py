"""Read CSV and YAML strictly, write files completely or not at all, and limit the size of downloads."""
