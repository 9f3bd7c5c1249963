"""What labels are for: a bundle updated by labelled patients."""
